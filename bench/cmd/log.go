package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// block is how much spew writes at once.
const block = 64 << 10

// write output of n bytes in numbered blocks of lines, so that a lost or doubled part shows.
func output(w io.Writer, n int64) error {
	b := bytes.Repeat([]byte("epoch 1 step 000000 loss 0.123456 accuracy 0.654321 lr 0.000100\n"), block/64)
	for i := int64(0); n > 0; i++ {
		copy(b, fmt.Sprintf("%012d", i))
		k := min(n, block)
		if _, err := w.Write(b[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// spew is the command of the log benchmark: it writes that many bytes as fast as it can.
func spew(bytes string) error {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return err
	}
	return output(os.Stdout, n)
}

// logs runs one job that writes a gigabyte, against the same command with its output redirected to
// a file.
func logs(b *bench) error {
	n := int64(b.size(1<<30, 64<<20))
	self, err := os.Executable()
	if err != nil {
		return err
	}
	want := sha256.New()
	if err := output(want, n); err != nil {
		return err
	}
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "log"))
	if err != nil {
		return err
	}
	defer s.Stop()
	if _, _, err := shortJobs(b, s, "warm", 10); err != nil {
		return err
	}
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	var ours, plain, cpus []float64
	megabytes := float64(n) / 1e6
	for round := range b.rounds {
		name := fmt.Sprintf("log-%d", round)
		before := s.Own()
		wall, err := b.logJob(s, c, name, fmt.Sprintf("%s spew %d", self, n))
		if err != nil {
			return err
		}
		cpus = append(cpus, peer.Ms(s.Own().Since(before)))
		ours = append(ours, megabytes/wall.Seconds())
		have := sha256.New()
		got, err := c.Copy(have, s.WS+"/jobs/"+name+"/logs")
		if err != nil {
			return err
		}
		if got != n || !bytes.Equal(have.Sum(nil), want.Sum(nil)) {
			return fmt.Errorf("the log has %d bytes of %d, or other ones", got, n)
		}
		if err := c.Delete(s.WS + "/jobs/" + name); err != nil {
			return err
		}
		discard(filepath.Join(s.Home))
		if wall, err = b.redirect(self, n); err != nil {
			return err
		}
		plain = append(plain, megabytes/wall.Seconds())
	}
	row := measure.Row{
		Name: "log", Unit: "MB/s", Value: measure.Median(ours), CPUPerOp: measure.Number(measure.Median(cpus)),
		Physical: "the redirect itself", Durable: "neither waits for the disk",
		Note: fmt.Sprintf("%d bytes by one job, submit to Completed; size and sha256 of the whole log checked each round; CPU is for the whole log", n),
	}
	row.Against("command > file", "sh", ours, plain, true)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 0.6})
	return b.write(row)
}

func (b *bench) logJob(s *world.Server, c *world.Conn, name, command string) (time.Duration, error) {
	w, err := s.Watch(b.ctx)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	limit := time.AfterFunc(5*time.Minute, w.Close)
	defer limit.Stop()
	t := time.Now()
	if err := c.Submit(s.WS, name, world.Job(command)); err != nil {
		return 0, err
	}
	err = allDone(w, 1)
	return time.Since(t), err
}

func (b *bench) redirect(self string, n int64) (time.Duration, error) {
	file := filepath.Join(b.dir, "plain")
	defer os.Remove(file)
	t := time.Now()
	out, err := exec.CommandContext(b.ctx, "/bin/sh", "-c", fmt.Sprintf("%s spew %d > %s", self, n, file)).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("redirect: %w: %s", err, out)
	}
	return time.Since(t), nil
}

// discard empties the big files below dir that nothing will read again, so that rounds do not wait
// for the disk to take the last round's bytes.
func discard(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // files come and go
		}
		if info, err := d.Info(); err == nil && info.Size() >= 32<<20 && filepath.Ext(path) != ".db" && filepath.Ext(path) != ".db-wal" {
			if f, err := os.Open(path); err == nil {
				head, _ := bufio.NewReader(f).Peek(12)
				f.Close()
				if string(head) == "000000000000" {
					_ = os.Remove(path)
				}
			}
		}
		return nil
	})
}
