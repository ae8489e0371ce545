package envs_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

var atExit []func()

func TestMain(m *testing.M) {
	if os.Getenv("BERTH_ENVS_CHILD") != "" {
		child()
		return
	}
	code := m.Run()
	for _, f := range atExit {
		f()
	}
	os.Exit(code)
}

// childJob is what a second process is asked to do: prepare an environment, several times at once,
// and say how it went.
type childJob struct {
	Dir, UV string
	Env     berth.LaunchEnv
	Times   int
}

type childResult struct {
	Dir    string
	Cached bool
	Err    string
}

func child() {
	var job childJob
	if err := json.Unmarshal([]byte(os.Getenv("BERTH_ENVS_CHILD")), &job); err != nil {
		panic(err)
	}
	c, err := envs.Open(job.Dir, envs.Options{UV: job.UV, DockerHost: "none"})
	if err != nil {
		panic(err)
	}
	results := make([]childResult, job.Times)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			env, err := c.Prepare(context.Background(), job.Env, nil, nil)
			if err != nil {
				results[i].Err = err.Error()
				return
			}
			results[i] = childResult{Dir: env.Dir, Cached: env.Cached}
			env.Release()
		})
	}
	wg.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(results)
}

func childCommand(t *testing.T, job childJob) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BERTH_ENVS_CHILD="+string(b))
	cmd.Stderr = os.Stderr
	return cmd
}

// talk collects what Prepare says.
type talk struct {
	mu       sync.Mutex
	progress []string
	warnings []string
}

func (k *talk) say(s string)  { k.mu.Lock(); k.progress = append(k.progress, s); k.mu.Unlock() }
func (k *talk) warn(s string) { k.mu.Lock(); k.warnings = append(k.warnings, s); k.mu.Unlock() }

func (k *talk) said(part string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Contains(strings.Join(k.progress, "\n"), part)
}

func open(t *testing.T, dir string, o envs.Options) *envs.Cache {
	t.Helper()
	c, err := envs.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func prepare(t *testing.T, c *envs.Cache, e berth.LaunchEnv) (*envs.Env, *talk) {
	t.Helper()
	var k talk
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	env, err := c.Prepare(ctx, e, k.say, k.warn)
	if err != nil {
		t.Fatalf("Prepare: %v\nprogress: %q", err, k.progress)
	}
	t.Cleanup(env.Release)
	return env, &k
}

func python(t *testing.T, env *envs.Env, code string) string {
	t.Helper()
	out, err := exec.Command(env.Dir+"/bin/python", "-c", code).CombinedOutput()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(5 * time.Millisecond); !ok(); {
		select {
		case <-deadline:
			t.Fatal("it did not happen within a minute")
		case <-tick.C:
		}
	}
}

var uvOnce = sync.OnceValues(func() (string, error) {
	if p, err := exec.LookPath("uv"); err == nil {
		return p, nil
	}
	dir, err := os.MkdirTemp("", "berth-uv-")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() { os.RemoveAll(dir) })
	c, err := envs.Open(dir, envs.Options{DockerHost: "none"})
	if err != nil {
		return "", err
	}
	env, err := c.Prepare(context.Background(), berth.LaunchEnv{Name: envs.Python}, nil, nil)
	if err != nil {
		return "", err
	}
	env.Release()
	found, err := filepath.Glob(dir + "/uv/*/uv")
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("uv is not in the cache: %v, %w", found, err)
	}
	return found[0], nil
})

// sharedUV is a uv program for all tests, fetched once when there is none.
func sharedUV(t *testing.T) string {
	t.Helper()
	uv, err := uvOnce()
	if err != nil {
		t.Fatal(err)
	}
	return uv
}

// An index is a package index of this test. Its packages have any version and hold a module that
// knows its version, and a file of as many bytes as the version says in thousands.
type index struct {
	*httptest.Server
	mu   sync.Mutex
	hold chan struct{} // when set, downloads wait for it to close
	held chan struct{} // gets a value when a download begins to wait
}

// newIndex starts an index and points pip, and so Berth, to it.
func newIndex(t *testing.T) *index {
	sharedUV(t) // which comes from elsewhere
	x := &index{held: make(chan struct{}, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/{name}/", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if strings.HasPrefix(name, "no-") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		versions := []string{"1.0", "1.2.5", "2.0", "1000.0"}
		if name == "pip" || name == "setuptools" || name == "wheel" { // every environment has them: small ones
			versions = versions[:1]
		}
		for _, v := range versions {
			f := fmt.Sprintf("%s-%s-py3-none-any.whl", strings.ReplaceAll(name, "-", "_"), v)
			fmt.Fprintf(w, "<a href=\"/files/%s\">%s</a><br>\n", f, f)
		}
	})
	mux.HandleFunc("/files/{file}", func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		hold := x.hold
		x.mu.Unlock()
		if hold != nil {
			x.held <- struct{}{}
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		parts := strings.Split(r.PathValue("file"), "-")
		w.Write(wheel(parts[0], parts[1]))
	})
	x.Server = httptest.NewServer(mux)
	t.Cleanup(x.Close)
	t.Setenv("PIP_INDEX_URL", x.URL+"/simple")
	t.Setenv("PIP_FIND_LINKS", "")
	t.Setenv("UV_NO_CONFIG", "1")
	return x
}

func (x *index) setHold(c chan struct{}) {
	x.mu.Lock()
	x.hold = c
	x.mu.Unlock()
}

// wheel is a package with one module and some bytes.
func wheel(name, version string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	add := func(file string, content []byte) {
		w, _ := z.CreateHeader(&zip.FileHeader{Name: file, Method: zip.Deflate})
		w.Write(content)
	}
	var size int
	fmt.Sscanf(version, "%d", &size)
	data := make([]byte, size*1000)
	rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	add(name+"/__init__.py", []byte(fmt.Sprintf("__version__ = %q\n", version)))
	add(name+"/data.bin", data)
	add(info+"METADATA", []byte(fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)))
	add(info+"WHEEL", []byte("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"))
	add(info+"RECORD", []byte(fmt.Sprintf("%s/__init__.py,,\n%s/data.bin,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n", name, name, info, info, info)))
	z.Close()
	return b.Bytes()
}
