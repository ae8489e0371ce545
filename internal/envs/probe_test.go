package envs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func program(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "python3")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProbeCertain: only what a program says by itself is remembered.
func TestProbeCertain(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, x := range []struct {
		name, text string
		ctx        context.Context
		certain    bool
	}{
		{"exit", "exit 1", t.Context(), true},
		{"killed", "kill -9 $$", t.Context(), false},
		{"late", "exit 1", over, false},
		{"text", "echo no Python", t.Context(), true},
		{"much", "trap '' PIPE; head -c 1000000 /dev/zero", t.Context(), true},
	} {
		t.Run(x.name, func(t *testing.T) {
			b, certain := new(Cache).probe(x.ctx, "", program(t, t.TempDir(), x.text), os.Environ())
			if b != nil || certain != x.certain {
				t.Errorf("%v, certain: %v", b, certain)
			}
		})
	}
}

// TestProbeApart: an interpreter is asked without the variables of a job and away from its folder,
// and once for all jobs. What pyenv chooses by counts, and tells jobs apart.
func TestProbeApart(t *testing.T) {
	for _, shims := range []bool{false, true} {
		dir, work, asked := filepath.Join(t.TempDir(), "bin"), t.TempDir(), filepath.Join(t.TempDir(), "asked")
		if shims {
			dir = filepath.Join(filepath.Dir(dir), "shims")
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, ".python-version"), []byte("3.9\n3.8\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		program(t, dir, `echo "$PWD $1 $PYTHONPATH $LD_PRELOAD $PYENV_VERSION $OURS" >> `+asked+`; exit 1`)
		c := &Cache{}
		host := []string{"PATH=/nowhere", "OURS=host"}
		for _, job := range []map[string]string{
			{"PYTHONPATH": "evil"},
			{"LD_PRELOAD": "", "OURS": "evil"},
			{"PYENV_VERSION": "3.12"},
			{"PYENV_VERSION": "3.12", "PYTHONHOME": "evil"},
		} {
			job["PATH"] = dir + ":/usr/bin:/bin"
			if b := c.Machine(t.Context(), host, job, work); b != nil {
				t.Errorf("%v is a Python", b)
			}
		}
		want := "/ -I    host\n"
		if shims {
			want = "/ -I   3.9:3.8 host\n/ -I   3.12 host\n"
		}
		if got, err := os.ReadFile(asked); err != nil || string(got) != want {
			t.Errorf("shims %v: asked as %q, %v; want %q", shims, got, err, want)
		}
	}
}

// TestReadSmall: a job's folder may hold anything under the name.
func TestReadSmall(t *testing.T) {
	dir := t.TempDir()
	at := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got := readSmall(at("good", "3.12\n")); got != "3.12\n" {
		t.Errorf("%q", got)
	}
	if err := os.Symlink("good", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "link"), at("large", strings.Repeat("3", 2000)), at("zero", "3\x00"), "/dev/zero", dir} {
		if got := readSmall(path); got != "" {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// TestKeptAnswers: what an interpreter said is known to a later process, unless the interpreter or
// what it hangs on has changed.
func TestKeptAnswers(t *testing.T) {
	dir, bin, asked := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "asked")
	write := func(version string) {
		t.Helper()
		program(t, bin, `echo asked >> `+asked+`; echo '{"exe":"`+filepath.Join(bin, "python3")+`","version":"`+version+`"}'`)
	}
	ask := func(more ...string) string {
		t.Helper()
		c, err := Open(dir, Options{KeepAnswers: true})
		if err != nil {
			t.Fatal(err)
		}
		b := c.Machine(t.Context(), append([]string{"PATH=" + bin + ":/usr/bin:/bin"}, more...), nil, t.TempDir())
		if b == nil {
			t.Fatal("no Python")
		}
		return b.version
	}
	times := func() int {
		b, _ := os.ReadFile(asked)
		return strings.Count(string(b), "asked")
	}
	write("3.1.0")
	for range 2 {
		if v := ask("SLURM_JOB_ID=" + t.TempDir()); v != "3.1.0" || times() != 1 {
			t.Errorf("version %s, asked %d times", v, times())
		}
	}
	if v := ask("HOME=/elsewhere"); v != "3.1.0" || times() != 2 {
		t.Errorf("with another home: version %s, asked %d times", v, times())
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(bin, past, past); err != nil { // as if it had been made later
		t.Fatal(err)
	}
	write("3.1.1")
	if v := ask(); v != "3.1.1" {
		t.Errorf("of a new interpreter: version %s", v)
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "pythons", "*"))
	n := times()
	for _, path := range kept {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if v := ask(); v != "3.1.1" || times() != n+1 {
		t.Errorf("of a damaged answer: version %s, asked %d times", v, times()-n)
	}
}
