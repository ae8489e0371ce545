package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/bench/peer"
	"github.com/berthml/berth/bench/world"
	"github.com/berthml/berth/internal/runner/stream"
)

// A file of fuseStore bytes is read in part: so much of it.
const (
	fuseStore = 50 << 30
	fusePart  = 4 << 30
)

// fuseDatastore times a job that streams a file of 50 GB from a datastore: its first byte, and its
// first 4 GB beside one GET of the same bytes. The file is sparse: the store sends zeros, which it
// reads nowhere.
func fuseDatastore(b *bench) error {
	why := stream.Trouble()
	if os.Geteuid() != 0 {
		why = "mounting takes root"
	}
	if why != "" {
		return b.write(measure.Row{Name: "fuse.datastore", Unit: "MB/s", Note: "not measured: " + why})
	}
	s, err := world.Start(b.ctx, b.group, b.bin, filepath.Join(b.dir, "fusestore"))
	if err != nil {
		return err
	}
	defer s.Stop()
	w, err := s.Watch(b.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	store, err := peer.StartS3(b.ctx, b.group, b.cache, filepath.Join(b.dir, "s3"))
	if err != nil {
		return err
	}
	defer store.Stop()
	if err := sparse(filepath.Join(store.Folder, "huge"), fuseStore); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "datastore.yaml")
	if err := os.WriteFile(file, []byte(store.Datastore("lake")), 0o600); err != nil {
		return err
	}
	if out, err := s.CLI(b.ctx, "datastore", "create", "--file", file).CombinedOutput(); err != nil {
		return fmt.Errorf("berth datastore create: %w: %s", err, out)
	}
	part := int64(b.size(fusePart, 256<<20))
	var ours, theirs, first, memory []float64
	for round := range min(b.rounds, 5) {
		got, err := b.plainGet(store, part)
		if err != nil {
			return err
		}
		head, all, err := b.readHuge(s, w, fmt.Sprintf("huge%d", round), part)
		if err != nil {
			return err
		}
		_, host := s.Processes()
		peak, err := measure.Peak(host...)
		if err != nil {
			return err
		}
		memory = append(memory, float64(peak)/1e6)
		first = append(first, head.Seconds()*1e3)
		ours, theirs = append(ours, float64(part)/1e6/all.Seconds()), append(theirs, float64(part)/1e6/got.Seconds())
	}
	what := fmt.Sprintf("%.3g GB of a sparse file of 54 GB on S3 on this machine, streamed", float64(part)/1e9)
	row := measure.Row{Name: "fuse.datastore", Unit: "MB/s", Value: measure.Median(ours), Note: "dd in a job: " + what}
	row.Against("one GET of the store", "versitygw "+peer.S3Version, ours, theirs, true)
	row.Judge(measure.Bound{Of: "ratio", Least: true, Limit: 0.6})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{Name: "fuse.datastore.first", Unit: "ms", Value: measure.Median(first), Rounds: len(first), Note: "the first byte of that file, by head -c 1 in a job, with the start of that process"}
	row.Judge(measure.Bound{Of: "value", Limit: 50})
	if err := b.write(row); err != nil {
		return err
	}
	row = measure.Row{
		Name: "fuse.datastore.memory", Unit: "MB", Value: memory[len(memory)-1], Rounds: len(memory),
		Note: fmt.Sprintf("peak RSS of the runner host, which serves the file, after all rounds; after the first it was %.3g MB", memory[0]),
	}
	row.Judge(measure.Bound{Of: "value", Limit: 400})
	return b.write(row)
}

func sparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// plainGet reads the beginning of the file by one request.
func (b *bench) plainGet(store *peer.S3, part int64) (time.Duration, error) {
	u, err := store.Get("huge")
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, u, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=0-%d", part-1))
	begin := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n != part {
		return 0, fmt.Errorf("the store sent %d bytes, %s: %w", n, res.Status, err)
	}
	return time.Since(begin), nil
}

// readHuge runs a job that streams the file: how long the first byte took it, and the beginning.
func (b *bench) readHuge(s *world.Server, w *world.Watch, name string, part int64) (first, all time.Duration, err error) {
	c, err := s.Dial(b.ctx, false)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	out := filepath.Join(b.dir, name+".ns")
	defer os.Remove(out)
	job := fmt.Appendf(nil, `{"properties":{"jobType":"Command","command":"a=$(date +%%s%%N); head -c 1 ${{inputs.data}} >/dev/null; b=$(date +%%s%%N); `+
		`dd if=${{inputs.data}} of=/dev/null bs=1M count=%d iflag=fullblock status=none && echo $((b-a)) $(($(date +%%s%%N)-b)) >%s",`+
		`"computeId":"azureml:local","properties":{"berth.stream":"data"},"inputs":{"data":{"jobInputType":"uri_file","uri":"azureml://datastores/lake/paths/huge","mode":"ReadOnlyMount"}}}}`,
		part>>20, out)
	return runTimed(c, w, s.WS, name, job, out)
}
