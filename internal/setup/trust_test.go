package setup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/setup"
)

// TestTrust: an authority is put into the stores of the system and of browsers, and taken out.
func TestTrust(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root changes the system's store")
	}
	if _, err := auth.LoadCerts(filepath.Join(t.TempDir(), "tls"), []string{"localhost"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tls")
	if _, err := auth.LoadCerts(dir, []string{"localhost"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	x := setup.Trust{Root: t.TempDir(), Home: t.TempDir(), CA: filepath.Join(dir, "ca.pem")}
	store := filepath.Join(x.Root, "usr/local/share/ca-certificates")
	if err := os.MkdirAll(store, 0o755); err != nil {
		t.Fatal(err)
	}
	steps, err := x.Plan(false)
	do(t, steps, err)
	found, _ := filepath.Glob(filepath.Join(store, "berth-*.crt"))
	want, _ := os.ReadFile(x.CA)
	if len(found) != 1 {
		t.Fatalf("in the store: %v", found)
	}
	if got, err := os.ReadFile(found[0]); err != nil || string(got) != string(want) {
		t.Errorf("%q, %v", got, err)
	}
	tool, _ := exec.LookPath("certutil")
	listed := func() string {
		out, err := exec.Command(tool, "-L", "-d", "sql:"+filepath.Join(x.Home, ".pki/nssdb")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if tool != "" && !strings.Contains(listed(), "berth-") {
		t.Errorf("the browser's store has %s", listed())
	}
	steps, err = x.Plan(true)
	do(t, steps, err)
	if found, _ := filepath.Glob(filepath.Join(store, "*")); len(found) > 0 || tool != "" && strings.Contains(listed(), "berth-") {
		t.Errorf("left: %v", found)
	}
	if err := os.WriteFile(x.CA, append(want, want...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Plan(false); berth.CodeOf(err) != berth.Denied {
		t.Errorf("a file with two certificates: %v", err)
	}
	x.CA = filepath.Join(t.TempDir(), "none")
	if _, err := x.Plan(false); berth.CodeOf(err) != berth.NotFound {
		t.Error(err)
	}
}

// TestOwnCertificate: the key of a certificate from elsewhere is in the home, hidden from jobs.
func TestOwnCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	if _, err := auth.LoadCerts(dir, []string{"localhost"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	x, _ := team(t)
	x.Certificate, x.Key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	steps, err := x.Plan()
	do(t, steps, err)
	info, err := os.Stat(filepath.Join(x.Root, x.Home, "tls/own/key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	text, err := os.ReadFile(filepath.Join(x.Root, x.Home, "berth.yaml"))
	if err != nil || !strings.Contains(string(text), "tls_key: "+x.Home+"/tls/own/key.pem\n") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(x.Root, "etc/berth/tls")); !os.IsNotExist(err) {
		t.Errorf("outside the home: %v", err)
	}
}
