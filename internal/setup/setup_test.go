package setup_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/setup"
	"github.com/berthml/berth/internal/store"
)

var ctx = context.Background()

func team(t *testing.T) (*setup.Team, *bytes.Buffer) {
	t.Helper()
	root := t.TempDir()
	program := filepath.Join(t.TempDir(), "berth")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	return &setup.Team{
		Root: root, Program: program, Account: "berth", Home: "/var/lib/berth", Name: "ml.example.org", Listen: "0.0.0.0:8443", Start: true, Secrets: &out,
		Users: []setup.User{{Name: "ann", Role: auth.Admin}, {Name: "bob", Role: auth.User, Life: 720 * time.Hour}},
	}, &out
}

// files are all paths below a folder.
func files(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(root, path); err == nil && rel != "." {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func do(t *testing.T, steps []setup.Step, err error) {
	t.Helper()
	for _, s := range steps {
		if err == nil {
			err = s.Do(ctx)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTeam: a server is set up below another root, with users whose tokens are good, and removed so
// that nothing is left.
func TestTeam(t *testing.T) {
	x, out := team(t)
	steps, err := x.Plan()
	if err != nil || len(files(t, x.Root)) > 0 {
		t.Fatalf("a plan has done something: %v, %v", files(t, x.Root), err)
	}
	do(t, steps, nil)
	home := filepath.Join(x.Root, "var/lib/berth")
	cfg, err := config.Load(home)
	if err != nil || cfg.Listen != "0.0.0.0:8443" || cfg.Advertise != "https://ml.example.org:8443" {
		t.Errorf("%+v, %v", cfg, err)
	}
	if config.Service(home) != "berth.service" {
		t.Error("the home does not say that a unit runs its server")
	}
	for name, want := range map[string]fs.FileMode{"var/lib/berth": 0o700, "var/lib/berth/berth.yaml": 0o600, "etc/systemd/system/berth.service": 0o644, "usr/local/bin/berth": 0o755} {
		if info, err := os.Stat(filepath.Join(x.Root, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	keys, err := auth.LoadKeys(home)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(ctx, cfg.DatabaseURL(), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	authority := auth.NewAuthority(keys, db)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("tokens: %q", lines)
	}
	for i, want := range []auth.Principal{{User: "ann", Role: auth.Admin}, {User: "bob", Role: auth.User}} {
		name, secret, _ := strings.Cut(lines[i], "\t")
		p, err := authority.Check(ctx, secret, time.Now())
		if err != nil || name != want.User || p.User != want.User || p.Role != want.Role || p.Expires.IsZero() != (name == "ann") {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	db.Close()
	if _, err := x.Plan(); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("once more: %v", err)
	}

	keep, err := setup.Removal{Root: x.Root, KeepHome: true}.Plan()
	do(t, keep, err)
	left := files(t, x.Root)
	if !slices.Contains(left, "var/lib/berth/secret.key") || slices.Contains(left, "etc/systemd/system/berth.service") || slices.Contains(left, "usr/local/bin/berth") || config.Service(home) != "" {
		t.Errorf("left: %v", left)
	}
	if _, err := (setup.Removal{Root: x.Root}).Plan(); berth.CodeOf(err) != berth.NotFound {
		t.Errorf("what is gone was removed: %v", err)
	}
}

// TestRemoveAll: nothing but folders that were there before, or that belong to the system, is left.
func TestRemoveAll(t *testing.T) {
	x, _ := team(t)
	if os.Geteuid() == 0 { // with accounts below the root
		for name, text := range map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/shadow": "root:*:1::::::\n", "etc/gshadow": "root:*::\n"} {
			if err := os.MkdirAll(filepath.Join(x.Root, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(x.Root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps, err := x.Plan()
	do(t, steps, err)
	passwd, _ := os.ReadFile(filepath.Join(x.Root, "etc/passwd"))
	if os.Geteuid() == 0 && !strings.Contains(string(passwd), "berth:x:") {
		t.Errorf("no account was created: %s", passwd)
	}
	steps, err = setup.Removal{Root: x.Root}.Plan()
	do(t, steps, err)
	for _, path := range files(t, x.Root) {
		if info, err := os.Lstat(filepath.Join(x.Root, path)); err == nil && !info.IsDir() && strings.Contains(path, "berth") || strings.HasPrefix(path, "var/lib/berth") {
			t.Errorf("%s is left", path)
		}
	}
	if passwd, _ := os.ReadFile(filepath.Join(x.Root, "etc/passwd")); strings.Contains(string(passwd), "berth") {
		t.Errorf("the account is left: %s", passwd)
	}
}

// TestUnit: systemd accepts the unit, which delegates control groups and lets jobs live.
func TestUnit(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:8443", "0.0.0.0:443"} {
		x, _ := team(t)
		x.Listen, x.Database, x.Account = listen, "postgres:///berth", "root" // an account that exists here
		text := x.Unit()
		for _, want := range []string{"Delegate=yes", "KillMode=process", "OOMPolicy=continue", "ExecStart=/usr/local/bin/berth serve --home /var/lib/berth\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("the unit has no %q:\n%s", want, text)
			}
		}
		if strings.Contains(text, "CAP_NET_BIND_SERVICE") != strings.HasSuffix(listen, ":443") {
			t.Errorf("%s: %s", listen, text)
		}
		tool, err := exec.LookPath("systemd-analyze")
		if err != nil {
			t.Skip("systemd-analyze is not installed")
		}
		path := filepath.Join(t.TempDir(), "berth.service")
		text = strings.ReplaceAll(text, "/usr/local/bin/berth", x.Program) // which must be there
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(tool, "verify", "--man=no", path).CombinedOutput()
		if err != nil || strings.Contains(string(out), "berth.service:") {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	}
}

// TestRefused: what cannot work is refused before anything is done.
func TestRefused(t *testing.T) {
	for what, change := range map[string]func(*setup.Team){
		"--listen":  func(x *setup.Team) { x.Listen = "0.0.0.0:0" },
		"--name":    func(x *setup.Team) { x.Name = "" },
		"--dir":     func(x *setup.Team) { x.Home = "/var/lib/x y" },
		"--acme":    func(x *setup.Team) { x.ACME = true },
		"--cert":    func(x *setup.Team) { x.Certificate = "x" },
		"--account": func(x *setup.Team) { x.Account = "a b" },
		"role":      func(x *setup.Team) { x.Users[0].Role = "boss" },
		"taken":     func(x *setup.Team) { x.Users[1].Name = "Ann" },
	} {
		x, _ := team(t)
		change(x)
		if _, err := x.Plan(); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), what) || len(files(t, x.Root)) > 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPasswordHidden: what is shown of the configuration has no password, however the address of
// the database is written; the file has it.
func TestPasswordHidden(t *testing.T) {
	for _, database := range []string{
		"postgres://berth:s3cret@db/berth", "postgres://berth:'s3cret\" #@db/berth", "postgres://berth:s3cret%zz@db/berth", "postgres://db/berth?user=berth&password=s3cret",
		"host=db password=s3cret", "postgres://berth:s3cret%0A@db/berth",
	} {
		x, _ := team(t)
		x.Users, x.Database = nil, database
		steps, err := x.Plan()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if strings.Contains(s.What+s.Text, "s3cret") {
				t.Errorf("%s: %s\n%s", database, s.What, s.Text)
			}
		}
	}
}
