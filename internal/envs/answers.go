package envs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// answerAge is how long the answer of an interpreter is good for. What it is asked for hardly ever
// changes without the program or its directory, which are in the key.
const answerAge = 24 * time.Hour

// answerPath is the file of an answer, empty where none are kept. What differs between jobs of a
// queueing system has no part in it. All processes that keep answers have one account, so that
// whoever can alter them can alter the programs as well.
func (c *Cache) answerPath(key string, environ []string) string {
	if !c.o.KeepAnswers {
		return ""
	}
	sum := sha256.New()
	io.WriteString(sum, key) //nolint:errcheck // it never fails
	for _, v := range slices.Sorted(slices.Values(environ)) {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case strings.HasPrefix(name, "SLURM_"), name == "TMPDIR", name == "CUDA_VISIBLE_DEVICES", name == "ROCR_VISIBLE_DEVICES", name == "GPU_DEVICE_ORDINAL":
		default:
			io.WriteString(sum, "\x00"+v) //nolint:errcheck // it never fails
		}
	}
	return c.path("pythons", hex.EncodeToString(sum.Sum(nil)[:16]))
}

var errNoAnswer = errors.New("no answer is kept")

// keptAnswer reads an answer.
func keptAnswer(path string) ([]byte, error) {
	if path == "" {
		return nil, errNoAnswer
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if age := time.Since(info.ModTime()); !info.Mode().IsRegular() || age < 0 || age > answerAge {
		return nil, errNoAnswer
	}
	return io.ReadAll(io.LimitReader(f, probeOutput))
}

// keepAnswer keeps an answer. One that cannot be kept is asked for again.
func (c *Cache) keepAnswer(path string, text []byte) {
	if path == "" {
		return
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(c.path("tmp"), "answer")
	}
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}
	if err != nil {
		c.log.Warn("what a Python says is not kept", "err", err)
	}
}
