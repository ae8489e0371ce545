package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
)

// big times a large file: upload, and a task that gets it, beside cp of the same file. Memory must
// not grow with the file.
func big(b *bench) error {
	size := b.fitting(int64(b.size(8<<30, 64<<20)))
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "big"))
	if err != nil {
		return err
	}
	defer s.Stop()
	file := filepath.Join(b.dir, "bigfile")
	defer os.Remove(file)
	var upload, stage, copied []float64
	var client, server float64
	for round := range min(b.rounds, 3) {
		if err := writeRandom(file, size, uint64(round)); err != nil {
			return err
		}
		// In turns: who comes first finds the file in memory as the other does.
		ms, err := b.copyFile(file)
		if err != nil {
			return err
		}
		copied = append(copied, ms)
		name := fmt.Sprintf("big%d", round)
		cmd := s.CLI(b.ctx, "data", "create", "-n", name, "-v", "1", "-t", "uri_file", "-p", file)
		ms, _, _, err = listed(cmd)
		if err != nil {
			return err
		}
		upload, client = append(upload, ms), max(client, float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1e3)
		r, err := b.newReader(s, "uri_file", name)
		if err != nil {
			return err
		}
		ms, err = r.task(fmt.Sprintf("big-%d", round))
		r.close()
		if err != nil {
			return err
		}
		stage = append(stage, ms)
		pids, _ := s.Processes()
		rss, _, err := measure.Memory(pids[0])
		if err != nil {
			return err
		}
		server = max(server, float64(rss)/1e6)
	}
	both := make([]float64, len(upload))
	for i := range both {
		both[i] = upload[i] + stage[i]
	}
	row := measure.Row{
		Name: "big", Unit: "ms", Value: measure.Median(both),
		Note: fmt.Sprintf("a file of %.3g GB: read, hashed and sent %.4g ms, and put on the node of the server's disk, submit to first instruction, %.3g ms; peak memory of the command %.3g MB, of the server %.3g MB",
			float64(size)/1e9, measure.Median(upload), measure.Median(stage), client, server),
	}
	row.Against("cp", "", both, copied, false)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 1 / 1.3})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{Name: "big.memory", Unit: "MB", Value: max(client, server), Note: "the larger of the two peaks while that file was sent"}
	row.Judge(measure.Bound{Of: "value", Limit: 200})
	return b.write(row)
}

// fitting is size, or less where the disk has not the room for eight times that.
func (b *bench) fitting(size int64) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(b.dir, &st); err != nil {
		return size
	}
	return min(size, int64(st.Bavail*uint64(st.Bsize)/8))
}

func writeRandom(path string, size int64, seed uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{byte(seed), 1}), size)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// copyFile times cp of a file, which it removes again.
func (b *bench) copyFile(from string) (float64, error) {
	to := from + ".copy"
	defer os.Remove(to)
	t := time.Now()
	out, err := exec.CommandContext(b.ctx, "cp", from, to).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cp: %w: %s", err, out)
	}
	return peer.Ms(time.Since(t)), err
}
