package storage

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/storage"
)

const versitygw = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// s3 is a server of S3 whose objects are files below a folder, behind a proxy.
type s3 struct {
	*proxy
	endpoint, bucket string // the address, and the folder of the bucket "data"
}

const (
	s3Key    = "testkey"
	s3Secret = "a-secret-that-nobody-else-has"
)

func startS3(t *testing.T) *s3 {
	t.Helper()
	tool, address, dir := world.Tool(t, versitygw), world.FreeAddress(t), t.TempDir()
	s := &s3{bucket: filepath.Join(dir, "data")}
	if err := os.Mkdir(s.bucket, 0o755); err != nil {
		t.Fatal(err)
	}
	world.Serve(t, address, func() *exec.Cmd {
		return program(tool, []string{"ROOT_ACCESS_KEY=" + s3Key, "ROOT_SECRET_KEY=" + s3Secret}, "--port", address, "posix", dir)
	})
	s.proxy = startProxy(t, "http://"+address)
	s.endpoint = s.URL
	return s
}

// key opens the bucket.
func (s *s3) key(t *testing.T) *storage.Key {
	t.Helper()
	return open(t, map[string]any{"datastoreType": "S3", "bucket": "data", "endpoint": s.endpoint},
		map[string]any{"credentialsType": "AccessKey", "accessKeyId": s3Key}, map[string]any{"secretAccessKey": s3Secret})
}

func (s *s3) get(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.bucket, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *s3) datastore(name, secret string) string {
	return "type: s3\nname: " + name + "\nbucket: data\nendpoint: " + s.endpoint +
		"\ncredentials:\n  access_key_id: " + s3Key + "\n  secret_access_key: " + secret + "\n"
}

// TestS3: a job reads a folder and a file of a bucket and writes to it. The secret is nowhere but
// in the sealed part of the database.
func TestS3(t *testing.T) {
	s := startS3(t)
	key := s.key(t)
	put(t, key, "in/a.txt", "alpha\n")
	put(t, key, "in/deep/b c+d.txt", "beta\n")
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	if got := y.berth("datastore", "show", "-n", "lake", "-o", "json") + y.berth("datastore", "list", "-o", "json"); strings.Contains(got, s3Secret) || !strings.Contains(got, s.endpoint) {
		t.Errorf("the datastore is shown as\n%s", got)
	}
	reads := strings.ReplaceAll(`
command: >-
  cat ${{inputs.folder}}/a.txt "${{inputs.folder}}/deep/b c+d.txt" ${{inputs.file}} &&
  mkdir -p ${{outputs.o}}/sub && echo written > "${{outputs.o}}/sub/o p.txt"
inputs:
  folder: {type: uri_folder, path: azureml://datastores/lake/paths/in, mode: MODE}
  file: {type: uri_file, path: "ENDPOINT/data/in/a.txt", mode: MODE}
outputs:
  o: {type: uri_folder, path: azureml://datastores/lake/paths/out/MODE}
`, "ENDPOINT", s.endpoint)
	for _, mode := range []string{"ro_mount", "download"} {
		told := y.completed("reads-"+strings.ReplaceAll(mode, "_", "-"), strings.ReplaceAll(reads, "MODE", mode))
		if !strings.Contains(told, "alpha\nbeta\nalpha\n") {
			t.Errorf("%s: the job saw\n%s", mode, told)
		}
		if got := s.get(t, "out/"+mode+"/sub/o p.txt"); got != "written\n" {
			t.Errorf("%s: the output is %q", mode, got)
		}
	}
	// Neither the second job nor the second name of a file had it brought again; one that is
	// changed is.
	if a, b := s.read("/in/a.txt"), s.read("d.txt"); a > 2 || b != 1 {
		t.Errorf("a.txt was read %d times, b c+d.txt %d times", a, b)
	}
	put(t, key, "in/a.txt", "gamma!\n")
	if told := y.completed("again", strings.ReplaceAll(reads, "MODE", "ro_mount")); !strings.Contains(told, "gamma!\nbeta\ngamma!\n") {
		t.Errorf("the job saw\n%s", told)
	}
	if a, b := s.read("/in/a.txt"), s.read("d.txt"); a != 2 || b != 0 {
		t.Errorf("after a change a.txt was read %d times, b c+d.txt %d times", a, b)
	}
	err := filepath.WalkDir(y.s.Home, func(p string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // it went away
		}
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), s3Secret) {
			t.Errorf("%s has the secret in clear", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

const copies = `
command: cat ${{inputs.i}}/a.txt
inputs:
  i: {type: uri_folder, path: azureml://datastores/lake/paths/in}
`

// TestS3Refuses: a job whose datastore has credentials that are refused fails with its name, and
// works again once it has new ones.
func TestS3Refuses(t *testing.T) {
	s := startS3(t)
	put(t, s.key(t), "in/a.txt", "alpha\n")
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", "another-secret")))
	status, told := y.job("refused", copies)
	if status != "Failed" || !strings.Contains(told, "datastore lake (s3://data/in) rejects the credentials") || strings.Contains(told, "X-Amz-Signature") {
		t.Errorf("%s:\n%s", status, told)
	}
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	y.completed("accepted", copies)
	// A list that goes on for ever, or names what is not below the folder, or a file with more
	// bytes than it says.
	for name, lie := range map[string]struct {
		odd  func(w http.ResponseWriter, r *http.Request) bool
		want string
	}{
		"escapes": {list("<Contents><Key>in/../../etc/passwd</Key><Size>1</Size></Contents>"), "can be that of a file"},
		"outside": {list("<Contents><Key>other/x</Key><Size>1</Size></Contents>"), "outside the folder"},
		"endless": {list("<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken><Contents><Key>in/a.txt</Key><Size>1</Size></Contents>"), "twice"},
		"longer":  {list("<Contents><Key>in/a.txt</Key><Size>3</Size></Contents>"), "more bytes"},
		"shorter": {list("<Contents><Key>in/a.txt</Key><Size>300</Size></Contents>"), "6 bytes"},
	} {
		s.answer(lie.odd)
		if status, told := y.job(name, copies); status != "Failed" || !strings.Contains(told, lie.want) {
			t.Errorf("%s: %s\n%s", name, status, told)
		}
	}
}

// list answers lists with these entries.
func list(entries string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !r.URL.Query().Has("list-type") {
			return false
		}
		_, _ = io.WriteString(w, "<ListBucketResult>"+entries+"</ListBucketResult>")
		return true
	}
}

// TestS3Away: a job whose storage does not answer says so, and goes on when it does.
func TestS3Away(t *testing.T) {
	s := startS3(t)
	put(t, s.key(t), "in/a.txt", "alpha\n")
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	s.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	y.berth("job", "create", "--file", y.file("away.yaml", y.yaml("away", copies)))
	y.until("away", "input i is waited for: listing: datastore lake (s3://data/in) does not answer", "explain", "away")
	s.answer(nil)
	if status, told := y.end("away"); status != "Completed" || !strings.Contains(told, "alpha") {
		t.Errorf("%s:\n%s", status, told)
	}
}

// TestS3Partial: what a job has written when it is cancelled, or fails, is there, and named as
// partial.
func TestS3Partial(t *testing.T) {
	s := startS3(t)
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	const writes = `
command: echo half > ${{outputs.o}}/x && echo wrote && END
outputs:
  o: {type: uri_folder, path: azureml://datastores/lake/paths/NAME, mode: rw_mount}
`
	if status, told := y.job("fails", strings.NewReplacer("END", "exit 3", "NAME", "fails").Replace(writes)); status != "Failed" || !strings.Contains(told, "output o: partial") {
		t.Errorf("%s:\n%s", status, told)
	}
	y.berth("job", "create", "--file", y.file("job.yaml", y.yaml("cancelled", strings.NewReplacer("END", "sleep 1000", "NAME", "cancelled").Replace(writes))))
	y.until("cancelled", "wrote", "logs", "cancelled")
	y.berth("job", "cancel", "-n", "cancelled")
	if status, told := y.end("cancelled"); status != "Canceled" || !strings.Contains(told, "output o: partial") {
		t.Errorf("%s:\n%s", status, told)
	}
	for _, name := range []string{"fails", "cancelled"} {
		if got := s.get(t, name+"/x"); got != "half\n" {
			t.Errorf("%s left %q", name, got)
		}
	}
}

// TestS3Pages: a folder with more files than a page of its list has, a file that is sent and read
// in parts, and a data asset of it.
func TestS3Pages(t *testing.T) {
	s := startS3(t)
	for i := range 2500 {
		p := filepath.Join(s.bucket, "in", strconv.Itoa(i%10), strconv.Itoa(i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(strconv.Itoa(i)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	y := begin(t, "")
	y.berth("datastore", "create", "--file", y.file("ds.yaml", s.datastore("lake", s3Secret)))
	y.berth("data", "create", "--name", "many", "--version", "1", "--type", "uri_folder", "--path", "azureml://datastores/lake/paths/in")
	told := y.completed("pages", `
command: find ${{inputs.i}}/ -type f | wc -l && cat ${{inputs.i}}/7/2497 && head -c 70000000 /dev/zero > ${{outputs.o}}/large && echo one > ${{outputs.f}}
inputs:
  i: {type: uri_folder, path: "azureml:many:1"}
outputs:
  o: {type: uri_folder, path: azureml://datastores/lake/paths/out}
  f: {type: uri_file, path: "`+s.endpoint+`/data/one.txt"}
`)
	if got := s.get(t, "one.txt"); got != "one\n" {
		t.Errorf("the output that is a file is %q", got)
	}
	if !strings.Contains(told, "2500\n2497") {
		t.Errorf("the job saw\n%s", told)
	}
	if info, err := os.Stat(filepath.Join(s.bucket, "out", "large")); err != nil || info.Size() != 70000000 {
		t.Errorf("the large file is %v, %v", info, err)
	}
	// The output of a job is where it is, also for the next job.
	if told := y.completed("next", "command: wc -c < ${{inputs.i}}/large\ninputs:\n  i: {type: uri_folder, path: azureml://jobs/pages/outputs/o}\n"); !strings.Contains(told, "70000000") {
		t.Errorf("the next job saw\n%s", told)
	}
	told = y.completed("large", "command: wc -c < ${{inputs.i}}\ninputs:\n  i: {type: uri_file, path: azureml://datastores/lake/paths/out/large}\n")
	if !strings.Contains(told, "70000000") {
		t.Errorf("the large file came as\n%s", told)
	}
}
