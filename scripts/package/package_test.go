package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/driver/kubernetes"
)

const version = "1.2.post3+gabc"

// here is the target that this test runs on.
func here(t *testing.T) target {
	t.Helper()
	i := slices.IndexFunc(targets, func(x target) bool { return x.os == runtime.GOOS && x.arch == runtime.GOARCH })
	if i < 0 || targets[i].os != "linux" {
		t.Skip("packages are tested on Linux")
	}
	return targets[i]
}

var built struct {
	once sync.Once
	data []byte
	err  error
}

// program is the binary of this machine.
func program(t *testing.T) []byte {
	t.Helper()
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "berth-package-")
		if err != nil {
			built.err = err
			return
		}
		defer os.RemoveAll(dir)
		cmd := exec.Command("go", "build", "-ldflags", "-s -w -X github.com/berthml/berth.Version="+version, "-o", filepath.Join(dir, "berth"), "../../cmd/berth")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = errors.Join(err, errors.New(string(out)))
			return
		}
		built.data, built.err = os.ReadFile(filepath.Join(dir, "berth"))
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.data
}

// says checks that a command prints the version.
func says(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), version) {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
}

func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	return path
}

func save(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDeb(t *testing.T) {
	dpkg := tool(t, "dpkg-deb")
	deb, err := makeDeb(version, here(t), program(t), map[string][]byte{"berth.1": []byte(".TH BERTH 1\n")})
	if err != nil {
		t.Fatal(err)
	}
	path, root := save(t, "berth.deb", deb), t.TempDir()
	for field, want := range map[string]string{"Package": "berth", "Version": version, "Architecture": here(t).deb} {
		out, err := exec.Command(dpkg, "--field", path, field).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %v %s", field, err, out)
		}
	}
	if out, err := exec.Command(dpkg, "--extract", path, root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	says(t, exec.Command(filepath.Join(root, "usr/bin/berth"), "version"))
	if _, err := os.Stat(filepath.Join(root, "usr/share/man/man1/berth.1.gz")); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	testInstall(t, path)
}

// testInstall installs a package into an empty root, and removes it: nothing is left but files of
// dpkg itself.
func testInstall(t *testing.T, path string) {
	t.Helper()
	root := t.TempDir()
	admin := filepath.Join(root, "var/lib/dpkg")
	for _, dir := range []string{"updates", "info", "triggers"} {
		if err := os.MkdirAll(filepath.Join(admin, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(admin, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"--install", path}, {"--purge", "berth"}} {
		args = append([]string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--log=" + filepath.Join(root, "log")}, args...)
		if out, err := exec.Command("dpkg", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		_, err := os.Stat(filepath.Join(root, "usr/bin/berth"))
		if installed := slices.Contains(args, "--install"); installed != (err == nil) {
			t.Errorf("%v: %v", args, err)
		}
	}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, root)
		if ours := rel != "" && rel != "/var" && rel != "/var/lib" && rel != "/log" && !strings.HasPrefix(rel, "/var/lib/dpkg"); ours {
			t.Errorf("%s is left", rel)
		}
		if strings.HasPrefix(rel, "/var/lib/dpkg/info/berth.") {
			t.Errorf("dpkg still has %s", rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(admin, "status")); err != nil || strings.Contains(string(b), "Package: berth") {
		t.Errorf("dpkg still knows it: %v %s", err, b)
	}
}

func TestWheel(t *testing.T) {
	python := tool(t, "python3")
	x := here(t)
	wheel, err := makeWheel(version, x, program(t))
	if err != nil {
		t.Fatal(err)
	}
	path, venv := save(t, wheelName(version, x), wheel), filepath.Join(t.TempDir(), "venv")
	if out, err := exec.Command(python, "-m", "venv", venv).CombinedOutput(); err != nil {
		t.Skipf("no virtual environments here: %v: %s", err, out)
	}
	pip := filepath.Join(venv, "bin/pip")
	if out, err := exec.Command(pip, "install", "--no-index", "--disable-pip-version-check", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	says(t, exec.Command(filepath.Join(venv, "bin/berth"), "version"))
	out, err := exec.Command(pip, "show", "berth").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Version: "+version) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := exec.Command(pip, "uninstall", "-y", "berth").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(venv, "bin/berth")); err == nil {
		t.Error("the program is left")
	}
}

// untar is the files of an archive.
func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for x := tar.NewReader(r); ; {
		h, err := x.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(x); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImage(t *testing.T) {
	image, err := makeImage(version, here(t), program(t), []byte("roots"))
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, bytes.NewReader(image))
	type descriptor struct {
		Digest string
		Size   int
	}
	blob := func(d descriptor) []byte {
		t.Helper()
		data, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if !ok || "sha256:"+digest(data) != d.Digest || len(data) != d.Size {
			t.Fatalf("the blob %+v is not what it is said to be", d)
		}
		return data
	}
	read := func(data []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	var conf struct {
		Architecture string
		Config       struct{ Entrypoint, Cmd []string }
		RootFS       struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(files["index.json"], &index)
	read(blob(index.Manifests[0]), &manifest)
	read(blob(manifest.Config), &conf)
	z, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil || conf.RootFS.DiffIDs[0] != "sha256:"+digest(layer) || conf.Architecture != runtime.GOARCH {
		t.Errorf("%+v, %v", conf, err)
	}
	if got := untar(t, bytes.NewReader(layer))["etc/ssl/certs/ca-certificates.crt"]; string(got) != "roots" {
		t.Errorf("root certificates %q", got)
	}
	if os.Geteuid() != 0 {
		return
	}
	root := t.TempDir() // the program needs nothing that the image does not have
	cmd := exec.Command("tar", "-x", "-C", root)
	cmd.Stdin = bytes.NewReader(layer)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	says(t, exec.Command("chroot", "--userspec=65532:65532", root, conf.Config.Entrypoint[0], "version"))
	tool(t, "skopeo")
	if out, err := exec.Command("skopeo", "inspect", "oci-archive:"+save(t, "image.tar", image)).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// rendered is the documents that the chart makes of values.
func rendered(t *testing.T, values map[string]any) (docs []map[string]any) {
	t.Helper()
	read := func(name string) (out map[string]any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("../../deploy/helm/berth", name))
		if err == nil {
			err = yaml.Unmarshal(text, &out)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		return out
	}
	all := read("values.yaml")
	for k, v := range values {
		all[k] = v
	}
	chart := read("Chart.yaml")
	data := map[string]any{
		"Values": all, "Chart": map[string]any{"AppVersion": chart["appVersion"]}, "Release": map[string]any{"Name": "rel", "Namespace": "space"},
	}
	paths, err := filepath.Glob("../../deploy/helm/berth/templates/*")
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	for _, path := range paths {
		tmpl, err := template.New(filepath.Base(path)).Option("missingkey=error").Funcs(template.FuncMap{ // of Helm's, as far as they are used
			"quote": func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
			"default": func(d, v any) any {
				if v == nil || reflect.ValueOf(v).IsZero() {
					return d
				}
				return v
			},
			"toYaml": func(v any) (string, error) { b, err := yaml.Marshal(v); return strings.TrimSpace(string(b)), err },
			"nindent": func(n int, s string) string {
				return "\n" + strings.Repeat(" ", n) + strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
			},
		}).ParseFiles(path)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := tmpl.Execute(&b, data); err != nil {
			t.Fatal(err)
		}
		for dec := yaml.NewDecoder(&b); ; {
			var doc map[string]any
			err := dec.Decode(&doc)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			docs = append(docs, doc)
		}
	}
	return docs
}

func kinds(docs []map[string]any) (out []string) {
	for _, d := range docs {
		out = append(out, d["kind"].(string))
	}
	slices.Sort(out)
	return out
}

func find(t *testing.T, docs []map[string]any, kind string) map[string]any {
	t.Helper()
	i := slices.IndexFunc(docs, func(d map[string]any) bool { return d["kind"] == kind })
	if i < 0 {
		t.Fatalf("there is no %s among %v", kind, kinds(docs))
	}
	return docs[i]
}

// TestChart: what the chart makes is complete, its configuration is one that a server takes, and
// its role has the rights that a compute of Kubernetes needs.
func TestChart(t *testing.T) {
	docs := rendered(t, map[string]any{"database": "postgres://u:p@db/x", "config": map[string]any{"slots": 3}})
	if got := kinds(docs); !slices.Equal(got, []string{"Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "StatefulSet"}) {
		t.Errorf("kinds %v", got)
	}
	if got := kinds(rendered(t, map[string]any{"jobs": map[string]any{"enabled": false}})); slices.Contains(got, "Role") {
		t.Errorf("without jobs: %v", got)
	}
	text := find(t, docs, "Secret")["stringData"].(map[string]any)["berth.yaml"].(string)
	path := save(t, "berth.yaml", []byte(text))
	t.Setenv("BERTH_CONFIG", path)
	cfg, err := config.Load(t.TempDir())
	if err != nil || cfg.Slots != 3 || cfg.LocalJobs || cfg.Kubernetes != "in-cluster/space" || cfg.Database != "postgres://u:p@db/x" {
		t.Errorf("%+v, %v\n%s", cfg, err, text)
	}
	needs := map[string]any{}
	for doc := range strings.SplitSeq(kubernetes.RBAC("space"), "---\n") {
		var d map[string]any
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
			t.Fatal(err)
		}
		if d["kind"] == "Role" {
			needs = d
		}
	}
	if got := find(t, docs, "Role")["rules"]; needs["rules"] == nil || !reflect.DeepEqual(got, needs["rules"]) {
		t.Errorf("the role has %v, and the driver needs %v", got, needs["rules"])
	}
	if helm, err := exec.LookPath("helm"); err == nil {
		if out, err := exec.Command(helm, "lint", "../../deploy/helm/berth").CombinedOutput(); err != nil {
			t.Errorf("helm lint: %v\n%s", err, out)
		}
	}
}

// TestDeployFiles: the formula has the hashes of the binaries, the compose file is sound, and its
// configuration is one that a server takes.
func TestDeployFiles(t *testing.T) {
	dist := t.TempDir()
	for _, x := range targets {
		if err := os.WriteFile(x.binary(dist), []byte(x.os+x.arch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := deployFiles(dist, version, "../../deploy"); err != nil {
		t.Fatal(err)
	}
	formula, err := os.ReadFile(filepath.Join(dist, "berth.rb"))
	if err != nil || !strings.Contains(string(formula), digest([]byte("darwinarm64"))) || !strings.Contains(string(formula), digest([]byte("linuxamd64"))) {
		t.Errorf("%s, %v", formula, err)
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		if out, err := exec.Command(ruby, "-c", filepath.Join(dist, "berth.rb")).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dist, "berth-1.2.0+post3.gabc.tgz")); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(dist, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct{ Image string }
		Configs  map[string]struct{ Content string }
	}
	if err := yaml.Unmarshal(text, &compose); err != nil || compose.Services["berth"].Image != "berth:1.2.post3-gabc" {
		t.Errorf("%+v, %v", compose, err)
	}
	conf := strings.NewReplacer("${BERTH_NAME:?set BERTH_NAME to the name of this machine}", "ml.example.org", "${BERTH_DB_PASSWORD}", "p").Replace(compose.Configs["berth"].Content)
	t.Setenv("BERTH_CONFIG", save(t, "berth.yaml", []byte(conf)))
	if cfg, err := config.Load(t.TempDir()); err != nil || cfg.Advertise != "https://ml.example.org:8443" {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestNormal(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2-4-gabc123": "1.2.post4+gabc123", "v1.2-dirty": "1.2+dirty", "005c58e": "0.0.0+005c58e", "dev": "0.0.0+dev", "": "0.0.0",
		"v1.2-4-gabc123-dirty": "1.2.post4+gabc123.dirty",
	} {
		if got := normal(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
