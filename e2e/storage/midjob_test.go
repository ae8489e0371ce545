package storage

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestS3AwayInTheMiddle: storage that goes away while an input is fetched is waited for, which the
// job says; what was fetched before, in whole batches, is not fetched again, and the job reads
// every byte.
func TestS3AwayInTheMiddle(t *testing.T) {
	s := startS3(t)
	sum := sha256.New()
	key := s.key(t)
	const files, before = 2500, 1500
	for i := range files {
		text := fillers(i, 100)
		put(t, key, fmt.Sprintf("in/%04d", i), string(text))
		sum.Write(text)
	}
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	var served atomic.Int64
	s.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/in/") || served.Add(1) <= before {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	y.berth("job", "create", "--file", y.file("away.yaml", y.yaml("away", `
command: cat ${{inputs.i}}/* | sha256sum
inputs:
  i: {type: uri_folder, path: azureml://datastores/lake/paths/in}
`)))
	y.until("away", "input i is waited for: fetching: datastore lake (s3://data/in) does not answer", "explain", "away")
	served.Store(0)
	s.answer(func(http.ResponseWriter, *http.Request) bool { served.Add(1); return false })
	if status, told := y.end("away"); status != "Completed" || !strings.Contains(told, fmt.Sprintf("%x", sum.Sum(nil))) {
		t.Errorf("%s:\n%s", status, told)
	}
	if n := served.Load(); n > files-1000+100 {
		t.Errorf("when it was back it was asked %d times for %d files, of which it had sent %d", n, files, before)
	}
}

// TestS3Revoked: a job whose datastore is closed to it while it runs is told so at once, and fails
// at its end with the datastore's name if it still is. With new credentials all is kept.
func TestS3Revoked(t *testing.T) {
	s := startS3(t)
	put(t, s.key(t), "in/a.txt", "alpha\n")
	y := begin(t, "")
	for name, mended := range map[string]bool{"revoked": false, "renewed": true} {
		y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
		stop := filepath.Join(y.dir, name)
		y.berth("job", "create", "--file", y.file("job.yaml", y.yaml(name, `
command: cat ${{inputs.i}}/a.txt && while ! test -e `+stop+`.begin; do sleep 0.05; done && echo half > ${{outputs.o}}/x && while ! test -e `+stop+`.end; do sleep 0.05; done
inputs:
  i: {type: uri_folder, path: azureml://datastores/lake/paths/in}
outputs:
  o: {type: uri_folder, path: azureml://datastores/lake/paths/`+name+`}
`)))
		y.until(name, "alpha", "logs", name)
		y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", "another-secret")))
		y.file(name+".begin", "")
		y.until(name, "what the command writes could not be uploaded while it runs, and is tried again: output o: writing to: datastore lake (s3://data/"+name+") rejects the credentials", "explain", name)
		want := "Failed"
		if mended {
			want = "Completed"
			y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
		}
		y.file(name+".end", "")
		status, told := y.end(name)
		if status != want || !mended && !strings.Contains(told, "keeping output o: writing to: datastore lake (s3://data/"+name+") rejects the credentials") || strings.Contains(told, "X-Amz-Signature") {
			t.Errorf("%s:\n%s", status, told)
		}
		if strings.Contains(told, "output o: partial") {
			t.Errorf("an output of which nothing is there is called partial, or one that is whole:\n%s", told)
		}
		if _, err := os.Stat(filepath.Join(s.bucket, name, "x")); mended != (err == nil) {
			t.Errorf("%s: the output: %v", name, err)
		}
	}
}

// TestLongNames: a name that cannot be that of a file on a node, in a bucket or in the server's own
// storage, is named in a warning; everything else is there. A long path of short names is read.
func TestLongNames(t *testing.T) {
	s := startS3(t)
	long := strings.Repeat("n", 300)
	deep := strings.Repeat(strings.Repeat("d", 100)+"/", 4) + "f"
	put(t, s.key(t), "in/a.txt", "alpha\n")
	put(t, s.key(t), "in/"+deep, "deep\n")
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	entry := func(name, text string) string {
		return fmt.Sprintf("<Contents><Key>in/%s</Key><Size>%d</Size></Contents>", name, len(text))
	}
	s.answer(list(entry("a.txt", "alpha\n") + entry(deep, "deep\n") + entry(long, "x")))
	reads := "command: find ${{inputs.i}} -type f | wc -l && cat ${{inputs.i}}/a.txt ${{inputs.i}}/" + deep + "\ninputs:\n  i: {type: uri_folder, path: "
	told := y.completed("bucket", reads+"azureml://datastores/lake/paths/in}\n")
	s.answer(nil)
	if !strings.Contains(told, "2\nalpha\ndeep\n") || !strings.Contains(told, long) {
		t.Errorf("of the bucket the job saw\n%s", told)
	}
	y.completed("writes", "command: mkdir -p ${{outputs.o}}/"+filepath.Dir(deep)+" && echo deep > ${{outputs.o}}/"+deep+" && echo alpha > ${{outputs.o}}/a.txt\noutputs:\n  o: {type: uri_folder}\n")
	if told := y.completed("own", reads+"azureml://jobs/writes/outputs/o}\n"); !strings.Contains(told, "2\nalpha\ndeep\n") {
		t.Errorf("of the server's storage the job saw\n%s", told)
	}
	if status, told := y.job("mine", "command: echo x > ${{outputs.o}}/"+long+"\noutputs:\n  o: {type: uri_folder}\n"); status != "Failed" || !strings.Contains(told, "File name too long") {
		t.Errorf("%s:\n%s", status, told)
	}
}
