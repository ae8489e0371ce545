package blob_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/store"
)

const crashDir = "BLOB_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		uploadForever(dir)
	}
	os.Exit(m.Run())
}

// uploadForever is the child that is killed: it says the name of each upload that is done.
func uploadForever(dir string) {
	ctx := context.Background()
	db, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{NoSync: true})
	if err != nil {
		log.Fatal(err)
	}
	s, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		log.Fatal(err)
	}
	sizes := []int{0, 10, 4096, 1 << 20}
	for w := range 4 {
		go func() {
			for {
				data := pattern(sizes[rand.IntN(len(sizes))])
				if len(data) > 0 {
					data[0] = byte(rand.Int())
				}
				name := fmt.Sprintf("w%d/%d", w, rand.IntN(1000))
				if w == 0 {
					err = s.PutBlock(ctx, "box", name, "1", bytes.NewReader(data))
					if err == nil {
						_, err = s.CommitBlocks(ctx, "box", name, []string{"1"}, blob.PutOptions{})
					}
				} else {
					_, err = s.Put(ctx, "box", name, bytes.NewReader(data), blob.PutOptions{})
				}
				if err != nil {
					log.Fatal(err)
				}
				fmt.Println(name)
			}
		}()
	}
	select {}
}

// A process killed at any instant leaves every blob in the index readable, and every upload it
// reported in the index.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var done []string
		lines := bufio.NewScanner(out)
		for len(done) < 20+30*round && lines.Scan() {
			done = append(done, lines.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out)
		cmd.Wait() // it was killed
		if whole := strings.LastIndexByte(string(rest), '\n'); whole >= 0 {
			done = append(done, strings.Fields(string(rest[:whole]))...)
		}
		s := openIn(t, dir)
		for _, name := range done {
			if _, err := s.Stat(t.Context(), "box", name); err != nil {
				t.Error("reported and lost:", err)
			}
		}
		names, _ := list(s, t, blob.ListOptions{})
		for _, name := range names {
			b, err := s.Stat(t.Context(), "box", name)
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, s, name); sha([]byte(got)) != b.Hash {
				t.Errorf("%s has other bytes than its hash says", name)
			}
		}
		if _, err := s.GC(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if left := append(files(t, s, "tmp"), files(t, s, "trash")...); len(left) > 0 {
			t.Error("left after GC:", left)
		}
	}
}
