package client_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// blobs is a small blob store: enough of the protocol to judge the client by.
type blobs struct {
	mu     sync.Mutex
	files  map[string][]byte
	blocks map[string][]byte
	meta   map[string]string
	fail   int // requests to fail before any succeeds

	meanwhile func() // called when a connection breaks in the middle of a download
	puts      int
}

func (b *blobs) handlers() map[string]http.HandlerFunc {
	b.files, b.blocks, b.meta = map[string][]byte{}, map[string][]byte{}, map[string]string{}
	return map[string]http.HandlerFunc{
		"GET datastores/workspaceblobstore":              answer(`{"properties":{"datastoreType":"AzureBlob","accountName":"elsewhere:1/st","endpoint":"berth/","containerName":"c","protocol":"https"}}`),
		"POST datastores/workspaceblobstore/listSecrets": answer(`{"secretsType":"Sas","sasToken":"sig=x%26y"}`),
		"PUT /st.blob.berth/":                            b.put,
		"HEAD /st.blob.berth/":                           b.head,
		"GET /st.blob.berth/":                            b.get,
	}
}

func (b *blobs) put(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := r.URL.Query()
	if q.Get("sig") != "x&y" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if b.fail > 0 {
		b.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.puts++
	if want := r.Header.Get("x-berth-content-sha256"); want != "" && q.Get("comp") == "" && want != sha(string(body)) {
		w.Header().Set("x-ms-error-code", "Sha256Mismatch")
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch q.Get("comp") {
	case "metadata":
		b.meta[r.URL.Path] = r.Header.Get("x-ms-meta-upload_status")
		return
	case "block":
		b.blocks[r.URL.Path+q.Get("blockid")] = body
	case "blocklist":
		var list struct{ Latest []string }
		if xml.Unmarshal(body, &list) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var whole []byte
		for _, id := range list.Latest {
			if _, err := base64.StdEncoding.DecodeString(id); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			whole = append(whole, b.blocks[r.URL.Path+id]...)
		}
		b.files[r.URL.Path] = whole
	default:
		b.files[r.URL.Path] = body
	}
	w.WriteHeader(http.StatusCreated)
}

func (b *blobs) head(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.files[r.URL.Path]; !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("x-ms-meta-upload_status", b.meta[r.URL.Path])
}

func (b *blobs) get(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.URL.Query().Get("comp") != "list" {
		body, ok := b.files[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		tag := `"` + sha(string(body))[:8] + `"`
		if want := r.Header.Get("If-Match"); want != "" && want != tag {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		w.Header().Set("ETag", tag)
		if at, ok := strings.CutPrefix(r.Header.Get("x-ms-range"), "bytes="); ok {
			n, _ := strconv.Atoi(strings.TrimSuffix(at, "-"))
			w.Header().Set("Content-Length", strconv.Itoa(len(body)-n))
			w.WriteHeader(http.StatusPartialContent)
			w.Write(body[n:])
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if b.fail > 0 { // a connection that breaks in the middle
			b.fail--
			w.Write(body[:len(body)/2])
			w.(http.Flusher).Flush()
			if b.meanwhile != nil {
				b.meanwhile()
			}
			panic(http.ErrAbortHandler)
		}
		w.Write(body)
		return
	}
	prefix := r.URL.Query().Get("prefix")
	io.WriteString(w, "<EnumerationResults><Blobs>")
	for path, body := range b.files {
		if name := strings.TrimPrefix(path, "/st.blob.berth/c/"); strings.HasPrefix(name, prefix) {
			io.WriteString(w, "<Blob><Name>")
			xml.EscapeText(w, []byte(name))
			fmt.Fprintf(w, "</Name><Properties><Content-Length>%d</Content-Length></Properties></Blob>", len(body))
		}
	}
	io.WriteString(w, "</Blobs><NextMarker/></EnumerationResults>")
}

func file(t *testing.T, name string, body []byte) client.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return client.File{Name: name, Path: path, Size: int64(len(body))}
}

func TestDataUploadOnceAndBack(t *testing.T) {
	b := &blobs{}
	c := open(t, b.handlers())
	b.fail = 2
	big := bytes.Repeat([]byte("0123456789abcdef"), 5<<20) // beyond one request
	var sent atomic.Int64
	u := &client.Upload{Folder: "my data", Hash: "h", Files: []client.File{
		file(t, "a.txt", []byte("a")), file(t, "sub dir/b%2F?.txt", []byte("bb")), file(t, "empty", nil), file(t, "big", big),
	}, Progress: func(done, total int64) {
		for old := sent.Load(); old < done && !sent.CompareAndSwap(old, done); old = sent.Load() {
		}
	}}
	uri, err := c.Data(t.Context(), "workspaceblobstore", u)
	if err != nil {
		t.Fatal(err)
	}
	if uri != "azureml://datastores/workspaceblobstore/paths/LocalUpload/h/my data" || sent.Load() != u.Size() {
		t.Errorf("uri %s, %d of %d bytes told", uri, sent.Load(), u.Size())
	}
	if n := len(b.blocks); n != 5 {
		t.Errorf("the big file went in %d blocks", n)
	}
	before := b.puts
	if again, err := c.Data(t.Context(), "workspaceblobstore", u); err != nil || again != uri || b.puts != before {
		t.Errorf("a second upload sent %d more: %v", b.puts-before, err)
	}

	b.fail = 1
	dir := t.TempDir()
	got, err := c.Download(t.Context(), uri, dir, nil)
	if err != nil || got.Files != 4 || got.Bytes != u.Size() {
		t.Fatalf("download: %+v, %v", got, err)
	}
	for _, f := range u.Files {
		want, _ := os.ReadFile(f.Path)
		have, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f.Name)))
		if err != nil || !bytes.Equal(want, have) {
			t.Errorf("%s: %d bytes, want %d: %v", f.Name, len(have), len(want), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part-*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

func TestDownloadOfOneFile(t *testing.T) {
	b := &blobs{}
	c := open(t, b.handlers())
	b.files["/st.blob.berth/c/p/x.csv"] = []byte("1,2")
	b.files["/st.blob.berth/c/p/x.csv.bak"] = []byte("old")
	dir := t.TempDir()
	got, err := c.Download(t.Context(), "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/workspaceblobstore/paths/p/x.csv", dir, nil)
	if err != nil || got.Files != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if have, _ := os.ReadFile(filepath.Join(dir, "x.csv")); string(have) != "1,2" {
		t.Errorf("got %q", have)
	}
	_, err = c.Download(t.Context(), "azureml://datastores/workspaceblobstore/paths/nothing", dir, nil)
	if berth.CodeOf(err) != berth.NotFound {
		t.Errorf("got %v", err)
	}
}

// TestDownloadOfFileThatIsAFolder: of a file and others below it, the file is left behind, and all
// else comes.
func TestDownloadOfFileThatIsAFolder(t *testing.T) {
	b := &blobs{}
	c := open(t, b.handlers())
	for _, name := range []string{"a", "a/b/c", "a/b", "a/d", "ab", "z"} {
		b.files["/st.blob.berth/c/p/"+name] = []byte("x")
	}
	dir := t.TempDir()
	got, err := c.Download(t.Context(), "azureml://datastores/workspaceblobstore/paths/p", dir, nil)
	slices.Sort(got.Left) // the store lists in no order
	if err != nil || got.Files != 4 || got.Bytes != 4 || !slices.Equal(got.Left, []string{"p/a", "p/a/b"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, name := range []string{"a/b/c", "a/d", "ab", "z"} {
		if have, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); string(have) != "x" {
			t.Errorf("%s: %q, %v", name, have, err)
		}
	}
}

// Names come from whoever wrote the blobs.
func TestDownloadStaysInItsFolder(t *testing.T) {
	for _, name := range []string{"../evil", "a/../../evil", "/etc/evil", `..\evil`, "a/./../../evil", "."} {
		b := &blobs{}
		c := open(t, b.handlers())
		b.files["/st.blob.berth/c/p/"+name] = []byte("x")
		parent := t.TempDir()
		_, err := c.Download(t.Context(), "azureml://datastores/workspaceblobstore/paths/p", filepath.Join(parent, "dir"), nil)
		if berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(parent, "evil")); err == nil {
			t.Errorf("%q was written outside", name)
		}
	}
	// A link in the way does not lead out either.
	b := &blobs{}
	c := open(t, b.handlers())
	b.files["/st.blob.berth/c/p/link/x"] = []byte("x")
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	if _, err := c.Download(t.Context(), "azureml://datastores/workspaceblobstore/paths/p", dir, nil); err == nil {
		t.Error("a link led out of the folder")
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Error("something was written outside")
	}
}

func TestCodeIsUploadedOnce(t *testing.T) {
	b := &blobs{}
	h := b.handlers()
	known := ""
	h["GET codes/{name}/versions"] = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("hash") != "h" || r.URL.Query().Get("hashVersion") != "202208" {
			t.Errorf("asked %s", r.URL.RawQuery)
		}
		if known == "" {
			io.WriteString(w, `{"value":[]}`)
			return
		}
		fmt.Fprintf(w, `{"value":[{"id":%q}]}`, known)
	}
	h["POST codes/{name}/versions/1/startPendingUpload"] = answer(`{"blobReferenceForConsumption":{"blobUri":"https://elsewhere:1/st.blob.berth/c/codes-1","credential":{"sasUri":"https://elsewhere:1/st.blob.berth/c/codes-1?sig=x%26y"}}}`)
	h["PUT codes/{name}/versions/1"] = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"codeUri":"https://elsewhere:1/st.blob.berth/c/codes-1/code"`)) {
			t.Errorf("body %s", body)
		}
		known = workspace + "/codes/" + r.PathValue("name") + "/versions/1"
		fmt.Fprintf(w, `{"id":%q}`, known)
	}
	c := open(t, h)
	u := &client.Upload{Folder: "code", Hash: "h", Files: []client.File{file(t, "train.py", []byte("pass"))}}
	id, there, err := c.Code(t.Context(), u, 202208)
	if err != nil || there || id != known {
		t.Fatalf("got %s, %t, %v", id, there, err)
	}
	if string(b.files["/st.blob.berth/c/codes-1/code/train.py"]) != "pass" {
		t.Errorf("files %v", b.files)
	}
	before := b.puts
	if again, there, err := c.Code(t.Context(), u, 202208); err != nil || !there || again != id || b.puts != before {
		t.Errorf("again: %s, %t, %v", again, there, err)
	}
}

func sha(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// TestFilesThatChange: a file that is no longer what was hashed fails the upload, whichever way it
// is sent, and the upload is not marked as whole.
func TestFilesThatChange(t *testing.T) {
	small := func() []client.File {
		return []client.File{file(t, "a", []byte("1")), file(t, "b", []byte("2")), file(t, "c", []byte("3")), file(t, "d", []byte("4"))}
	}
	large := func() []client.File { return []client.File{file(t, "a", bytes.Repeat([]byte("x"), 300<<10))} }
	for name, files := range map[string][]client.File{"packed": small(), "packed shorter": small(), "alone": large(), "alone shorter": large()} {
		t.Run(name, func(t *testing.T) {
			b := &blobs{}
			c := open(t, b.handlers())
			last := files[len(files)-1]
			u := &client.Upload{Folder: "data", Hash: "h", Files: files, Hashes: func(files []client.File) {
				for i := range files {
					text, err := os.ReadFile(files[i].Path)
					if err != nil {
						t.Error(err)
					}
					files[i].Hash = sha(string(text))
				}
				size := last.Size
				if strings.Contains(name, "shorter") {
					size /= 2
				}
				if err := os.WriteFile(last.Path, bytes.Repeat([]byte("y"), int(size)), 0o600); err != nil {
					t.Error(err)
				}
			}}
			_, err := c.Data(t.Context(), "workspaceblobstore", u)
			if !client.IsChanged(err) || berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), last.Path+" changed while it was being uploaded") {
				t.Errorf("got %v", err)
			}
			if len(b.meta) > 0 {
				t.Errorf("marked as whole: %v", b.meta)
			}
			for i := range files {
				files[i].Hash = ""
			}
			if err := os.WriteFile(last.Path, bytes.Repeat([]byte("y"), int(last.Size)), 0o600); err != nil {
				t.Fatal(err)
			}
			u.Hashes = nil
			if _, err := c.Data(t.Context(), "workspaceblobstore", u); err != nil || len(b.meta) != 1 {
				t.Errorf("the next upload: %v, %v", err, b.meta)
			}
		})
	}
}

// TestDownloadOfAChangedFile: what is fetched after a connection broke is not put after the
// beginning of another version; the new one is fetched as a whole.
func TestDownloadOfAChangedFile(t *testing.T) {
	for name, size := range map[string]int{"as long": 1 << 20, "shorter": 1 << 10, "longer": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			b := &blobs{}
			c := open(t, b.handlers())
			b.files["/st.blob.berth/c/p/x"] = bytes.Repeat([]byte("a"), 1<<20)
			b.fail = 1
			b.meanwhile = func() { b.files["/st.blob.berth/c/p/x"] = bytes.Repeat([]byte("b"), size) }
			dir := t.TempDir()
			var told atomic.Int64
			_, err := c.Download(t.Context(), "azureml://datastores/workspaceblobstore/paths/p/x", dir, func(done, total int64) { told.Store(done) })
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, "x"))
			if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("b"), size)) {
				t.Errorf("%d bytes, of which %d are of the first version: %v", len(got), bytes.Count(got, []byte("a")), err)
			}
			if told.Load() != int64(size) {
				t.Errorf("progress ended at %d of %d", told.Load(), size)
			}
		})
	}
}
