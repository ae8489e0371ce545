package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/world"
)

// sweepData runs many tasks over one large input and counts the bytes that the server and the node
// read and write for it.
func sweepData(b *bench) error {
	const tasks = 50
	size := b.fitting(int64(b.size(2<<30, 64<<20)))
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "sweepdata"))
	if err != nil {
		return err
	}
	defer s.Stop()
	dir := filepath.Join(b.dir, "input")
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range 4 {
		if err := writeRandom(filepath.Join(dir, fmt.Sprintf("part%d", i)), size/4, uint64(100+i)); err != nil {
			return err
		}
	}
	if out, err := s.CLI(b.ctx, "data", "create", "-n", "input", "-v", "1", "-t", "uri_folder", "-p", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("berth data create: %w: %s", err, out)
	}
	r, err := b.newReader(s, "uri_folder", "input")
	if err != nil {
		return err
	}
	defer r.close()
	before, err := moved(s)
	if err != nil {
		return err
	}
	var all []float64
	for i := range tasks {
		ms, err := r.task(fmt.Sprintf("trial-%d", i))
		if err != nil {
			return err
		}
		all = append(all, ms)
	}
	after, err := moved(s)
	if err != nil {
		return err
	}
	row := measure.Row{
		Name: "sweep.data", Unit: "x the input", Value: (after - before) / float64(size), Rounds: 1,
		Note: fmt.Sprintf("bytes that the server and the runner host read and wrote for %d tasks over one input of %.3g GB, by its size; submit to first instruction p50 %.3g ms, the first %.3g ms",
			tasks, float64(size)/1e9, measure.Median(all), all[0]),
	}
	row.Judge(measure.Bound{Of: "value", Limit: 1})
	return b.write(row)
}

// moved is how many bytes our processes have read and written so far, of files and connections
// alike.
func moved(s *world.Server) (n float64, err error) {
	server, host := s.Processes()
	for _, pid := range append(server, host...) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			return 0, err
		}
		for sc := bufio.NewScanner(bytes.NewReader(text)); sc.Scan(); {
			name, value, _ := strings.Cut(sc.Text(), ": ")
			if v, err := strconv.ParseFloat(value, 64); err == nil && (name == "rchar" || name == "wchar") {
				n += v
			}
		}
	}
	return n, nil
}
