package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/world"
	"github.com/berthml/berth/internal/runner/stream"
)

// fuse times a job that reads a streamed file from front to back, beside the store's own speed: one
// request for the same file over the same socket. The time to a file's first byte is measured in
// the job too.
func fuse(b *bench) error {
	why := stream.Trouble()
	if os.Geteuid() != 0 {
		why = "mounting takes root"
	}
	if why != "" {
		return b.write(measure.Row{Name: "fuse", Unit: "MB/s", Note: "not measured: " + why})
	}
	size := b.fitting(int64(b.size(4<<30, 256<<20)))
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "fuse"))
	if err != nil {
		return err
	}
	defer s.Stop()
	w, err := s.Watch(b.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	file := filepath.Join(b.dir, "fusefile")
	defer os.Remove(file)
	var ours, theirs, first []float64
	for round := range min(b.rounds, 5) {
		if err := writeRandom(file, size, uint64(100+round)); err != nil {
			return err
		}
		name := fmt.Sprintf("fuse%d", round)
		if out, err := s.CLI(b.ctx, "data", "create", "-n", name, "-v", "1", "-t", "uri_file", "-p", file).CombinedOutput(); err != nil {
			return fmt.Errorf("berth data create: %w: %s", err, out)
		}
		head, all, got, err := b.readBoth(s, w, name)
		if err != nil {
			return err
		}
		first = append(first, head.Seconds()*1e3)
		ours, theirs = append(ours, float64(size)/1e6/all.Seconds()), append(theirs, float64(size)/1e6/got.Seconds())
	}
	what := fmt.Sprintf("a file of %.3g GB in the server's storage, streamed", float64(size)/1e9)
	row := measure.Row{Name: "fuse", Unit: "MB/s", Value: measure.Median(ours), Note: "cat in a job: " + what}
	row.Against("one GET of the store", "", ours, theirs, true)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 0.6})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{Name: "fuse.first", Unit: "ms", Value: measure.Median(first), Rounds: len(first), Note: "the first byte, by head -c 1 in a job, with the start of that process: " + what}
	row.Judge(measure.Bound{Of: "value", Limit: 50})
	return b.write(row)
}

// readBoth reads an asset by one request, which took got, and in a job that streams it. The
// connection is made here: the server closes one that is idle while a file is written.
func (b *bench) readBoth(s *world.Server, w *world.Watch, asset string) (first, all, got time.Duration, err error) {
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		return 0, 0, 0, err
	}
	defer c.Close()
	at, err := blobPath(s, c, asset)
	if err != nil {
		return 0, 0, 0, err
	}
	begin := time.Now()
	if _, err := c.Copy(io.Discard, at); err != nil {
		return 0, 0, 0, err
	}
	got = time.Since(begin)
	first, all, err = b.streamed(s, c, w, asset)
	return first, all, got, err
}

// streamed runs a job that reads a streamed asset: how long the first byte took it, and all.
func (b *bench) streamed(s *world.Server, c *world.Conn, w *world.Watch, asset string) (first, all time.Duration, err error) {
	out := filepath.Join(b.dir, asset+".ns")
	defer os.Remove(out)
	job := fmt.Appendf(nil, `{"properties":{"jobType":"Command","command":"a=$(date +%%s%%N); head -c 1 ${{inputs.data}} >/dev/null; b=$(date +%%s%%N); cat ${{inputs.data}} >/dev/null; echo $((b-a)) $(($(date +%%s%%N)-b)) >%s",`+
		`"computeId":"azureml:local","properties":{"berth.stream":"data"},"inputs":{"data":{"jobInputType":"uri_file","uri":"azureml:%s:1","mode":"ReadOnlyMount"}}}}`, out, asset)
	return runTimed(c, w, s.WS, "read-"+asset, job, out)
}

// runTimed runs a job that writes two times in nanoseconds to a file.
func runTimed(c *world.Conn, w *world.Watch, ws, name string, job []byte, out string) (first, all time.Duration, err error) {
	if err := c.Submit(ws, name, job); err != nil {
		return 0, 0, err
	}
	for {
		e, err := w.Next()
		if err != nil {
			return 0, 0, err
		}
		if e.Done() {
			break
		}
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscan(string(text), &first, &all)
	return first, all, err
}

// blobPath is where the file of an asset is in the server's storage, signed.
func blobPath(s *world.Server, c *world.Conn, asset string) (string, error) {
	var data, store struct {
		Properties struct{ DataURI, AccountName, Endpoint, ContainerName string }
	}
	var secret struct{ SasToken string }
	for _, x := range []struct {
		method, path string
		into         any
	}{
		{"GET", "/data/" + asset + "/versions/1", &data}, {"GET", "/datastores/workspaceblobstore", &store}, {"POST", "/datastores/workspaceblobstore/listSecrets", &secret},
	} {
		raw, err := c.Do(x.method, s.WS+x.path, nil)
		if err == nil {
			err = json.Unmarshal(raw, x.into)
		}
		if err != nil {
			return "", err
		}
	}
	_, account, _ := strings.Cut(store.Properties.AccountName, "/")
	_, name, ok := strings.Cut(data.Properties.DataURI, "/paths/")
	if !ok {
		return "", fmt.Errorf("asset %s is at %s", asset, data.Properties.DataURI)
	}
	return "/" + account + ".blob." + strings.Trim(store.Properties.Endpoint, "/") + "/" + store.Properties.ContainerName + "/" + name + secret.SasToken, nil
}
