package peer

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// MakeTree writes a folder of n files of size bytes each that no other folder has, a hundred to a
// folder.
func MakeTree(dir string, n, size int) error {
	seed := [32]byte{}
	binary.LittleEndian.PutUint64(seed[:], uint64(time.Now().UnixNano()))
	random, buf := rand.NewChaCha8(seed), make([]byte, size)
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("part%d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
		}
		_, _ = random.Read(buf) // never fails
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%d.py", i)), buf, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// CopyExec is what a shell does to give a command a folder of its own: `cp -a` and exec. It returns
// the milliseconds to the command's first instruction, and removes the copy.
func CopyExec(ctx context.Context, from, to, stamp string, pipe *Pipe) (float64, error) {
	defer os.RemoveAll(to)
	t := time.Now()
	if out, err := exec.CommandContext(ctx, "/bin/sh", "-c", `cp -a "$0" "$1" && exec "$2" "$3"`, from, to, stamp, pipe.Path).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("cp -a: %w: %s", err, out)
	}
	first, err := pipe.Wait(time.Minute)
	return Ms(first.Sub(t)), err
}
