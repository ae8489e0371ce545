//go:build engines

package instance_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth/e2e/world"
)

// TestApplication has a custom application on a real dockerd: it is reached through the proxy,
// comes back when it is killed, and goes with the instance.
func TestApplication(t *testing.T) {
	const engines = "../engines/k8s"
	dir, err := os.MkdirTemp("", "bg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(engines+"/dockerd-down.sh", dir).CombinedOutput(); err != nil {
			t.Logf("%v\n%s", err, out)
		}
		os.RemoveAll(dir)
	})
	log, err := os.Create(filepath.Join(dir, "up.log")) // a pipe would stay open as long as the engine
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	up := exec.Command(engines+"/dockerd.sh", dir)
	up.Stdout, up.Stderr = log, log
	if err := up.Run(); err != nil {
		if strings.Contains(os.Getenv("BERTH_REQUIRE_ENGINES"), "docker") {
			t.Fatal(err)
		}
		t.Skipf("dockerd cannot be started: %v", err)
	}
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "docker.sock"))
	t.Setenv("DOCKER_BUILDKIT", "0")
	tar := filepath.Join(t.TempDir(), "python.tar")
	file := filepath.Join(t.TempDir(), "Dockerfile")
	text := "FROM localhost/python:1\nWORKDIR /srv\nCMD [\"sh\", \"-c\", \"echo $GREETING > index.html; exec python3 -m http.server 8765\"]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if out, err := exec.Command(engines+"/node/mkpython.sh", tar).CombinedOutput(); err != nil {
		t.Fatalf("making the image: %v\n%s", err, out)
	}
	docker("load", "-i", tar)
	docker("build", "-q", "-t", "localhost/web:1", filepath.Dir(file))

	p := &place{Server: world.Start(t), t: t, name: "apps"}
	p.make(`custom_applications:
  - name: web
    image: {reference: "localhost/web:1"}
    endpoints: [{target: 8765, published: 8765}]
    environment_variables: {GREETING: ahoy}
  - name: missing
    image: {reference: "localhost:1/none:1"}
    endpoints: [{target: 8766, published: 8766}]
`)
	answers := func() bool {
		res, b := p.do("GET", p.app()+"/web/", p.Token, nil)
		return res.StatusCode == http.StatusOK && b == "ahoy\n"
	}
	p.until("the application answers", answers)
	if res, b := p.do("GET", p.app()+"/missing/", p.Token, nil); res.StatusCode != http.StatusConflict || !strings.Contains(b, "does not run") {
		t.Errorf("an application whose image is not there: %s %s", res.Status, b)
	}
	docker("kill", strings.TrimSpace(docker("ps", "-q")))
	p.until("the application is back", answers)
	p.run("compute", "stop", "-n", p.name)
	if left := docker("ps", "-aq"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
}
