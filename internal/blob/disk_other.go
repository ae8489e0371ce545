//go:build !linux

package blob

import "os"

const writebackStep = 1 << 62

func writeback(*os.File, int64, int64) {}

func clone(dst, src *os.File) bool { return false }

func free(string) int64 { return -1 }

const openFlags = 0

func syncMany(_ string, temps map[string]*temp) error {
	for _, t := range temps {
		if err := t.Sync(); err != nil {
			return err
		}
	}
	return nil
}

func syncDirs(_ string, dirs map[string]bool) error {
	for d := range dirs {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return nil
}
