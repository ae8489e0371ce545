package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/berthml/berth/internal/spec"
)

const plainJob = "command: x\nenvironment: azureml:e:1\n"

// Text that aliases repeat counts as often as it is used: a small file must not become gigabytes.
func TestRepeatedText(t *testing.T) {
	text := plainJob + "tags: {a: &a '" + strings.Repeat("x", 100_000) + "'" + strings.Repeat(", k: *a", 20_000)
	_, err := spec.LoadBytes([]byte(text+"}\n"), spec.Options{Kind: "job", File: "f.yml"})
	if err == nil || !strings.Contains(err.Error(), "f.yml:3:") || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("%v", err)
	}
}

// A component that many steps name is read once: levels of such files multiply to more steps than
// there is memory.
func TestMultiplyingFiles(t *testing.T) {
	root, files := t.TempDir(), map[string]string{}
	for i := range 20 {
		text := "type: pipeline\nname: p\njobs:\n"
		for _, step := range []string{"a", "b", "c", "d"} {
			text += "  " + step + ": {type: pipeline, component: ./" + itoa(i+1) + ".yml}\n"
		}
		files[itoa(i)+".yml"] = text
	}
	files["20.yml"] = "type: pipeline\nname: p\njobs:\n  a: {type: command, compute: azureml:local, component: ./leaf.yml}\n"
	files["leaf.yml"] = "name: c\ntype: command\n" + plainJob
	write(t, root, files)
	r, err := spec.Load(filepath.Join(root, "0.yml"), spec.Options{Kind: "job"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Resources); n != 22 { // each file once
		t.Errorf("%d resources", n)
	}
	files["leaf.yml"] = "name: c\ntype: command\nenvironment: azureml:e:1\n"
	write(t, root, files)
	_, err = spec.Load(filepath.Join(root, "0.yml"), spec.Options{Kind: "job"})
	if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), "leaf.yml:1:1:") {
		t.Errorf("%v", err)
	}
}

// A message shows what cannot be seen: a file must not command the terminal of who reads what is
// wrong with it.
func TestUnprintableNames(t *testing.T) {
	for key, want := range map[string]string{
		`"\e[31mfoo"`:  `f.yml:3:1: \x1b[31mfoo: unknown field`,
		`"\x9b31m"`:    `f.yml:3:1: \u009b31m: unknown field`,
		"\"\u202ex\"":  `f.yml:3:1: \u202ex: unknown field`,
		`"a\nb"`:       `f.yml:3:1: a\nb: unknown field`,
		`"gr\xfc\xdf"`: `f.yml:3:1: grüß: unknown field`,
	} {
		_, err := spec.LoadBytes([]byte(plainJob+key+": 1\n"), spec.Options{Kind: "job", File: "f.yml"})
		if err == nil || err.Error() != want {
			t.Errorf("%s gives %q, want %q", key, err, want)
		}
	}
	_, err := spec.LoadBytes([]byte(plainJob+"code: \"./\\0\\e[2J\"\n"), spec.Options{Kind: "job", File: "f.yml"})
	if err == nil || strings.ContainsFunc(err.Error(), unicode.IsControl) {
		t.Errorf("%q", err)
	}
}

// What no text may hold is told with its place, and other encodings by their name.
func TestEncodingPlaces(t *testing.T) {
	wide := func(s string) []byte {
		var b []byte
		for _, r := range s {
			b = append(b, byte(r), 0)
		}
		return b
	}
	for text, want := range map[string]string{
		"command: x\nname: é\xff\n":                        "f.yml:2:8: is not valid UTF-8; save it as UTF-8",
		"command: x\nname: é\x00\n":                        "f.yml:2:8: is not valid YAML: control characters are not allowed",
		"command: x\n\x1b[2J\n":                            "f.yml:2:1: is not valid YAML: control characters are not allowed",
		string(wide("command: x\n")):                       "f.yml:1:1: is not UTF-8 but looks like UTF-16; save it as UTF-8",
		"\xff\xfe" + string(wide("command: x\n\x01")):      "f.yml:2:1: is not valid YAML: control characters are not allowed",
		"\xff\xfe" + string(wide("command: x\n")) + "\x00": "f.yml:2:1: is not valid UTF-16; save it as UTF-8",
		"\xff\xfe" + string(wide("a: ")) + "\x00\xd8":      "f.yml:1:4: is not valid UTF-16; save it as UTF-8",
	} {
		_, err := spec.LoadBytes([]byte(text), spec.Options{File: "f.yml"})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q gives\n%v, want\n%s", text, err, want)
		}
	}
}

// The last of equal keys counts, as in Python, and it is said.
func TestRepeatedKeys(t *testing.T) {
	r, err := spec.LoadBytes([]byte(plainJob+"tags: {a: one, a: two}\n"), spec.Options{Kind: "job", File: "f.yml"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Warnings) != 1 || r.Warnings[0].Error() != `f.yml:3:16: duplicate key "a", first set on line 3; this value is used` {
		t.Errorf("%v", r.Warnings)
	}
	root := t.TempDir()
	write(t, root, map[string]string{
		"p.yml": "type: pipeline\nsettings: {default_compute: serverless}\njobs:\n  a: {type: command, component: ./c.yml}\n",
		"c.yml": plainJob + "type: command\nname: a\nname: b\n",
	})
	r, err = spec.Load(filepath.Join(root, "p.yml"), spec.Options{Kind: "job"})
	if err != nil || len(r.Warnings) != 1 || r.Warnings[0].Line != 5 {
		t.Errorf("%v, %v", r, err)
	}
}

// A pipe that nobody writes to, and a device that never ends, are not waited for.
func TestNoFiles(t *testing.T) {
	root := t.TempDir()
	pipe := filepath.Join(root, "pipe")
	if err := makePipe(pipe); err != nil {
		t.Skip(err)
	}
	job := filepath.Join(root, "job.yml")
	for _, path := range []string{pipe, os.DevNull} {
		if _, err := spec.Load(path, spec.Options{Kind: "job"}); err == nil || !strings.Contains(err.Error(), "is a pipe or a device, not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
		for field, text := range map[string]string{
			"component":  "type: pipeline\nsettings: {default_compute: serverless}\njobs:\n  a: {type: command, component: " + path + "}\n",
			"conda_file": "command: x\nenvironment: {image: i, conda_file: " + path + "}\n",
			"code":       plainJob + "code: " + path + "\n",
			"path":       plainJob + "inputs: {d: {type: uri_file, path: " + path + "}}\n",
		} {
			if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := spec.Load(job, spec.Options{Kind: "job"})
			if err == nil || !strings.Contains(err.Error(), field+": ") || !strings.Contains(err.Error(), "is a pipe or a device, not a regular file") && !strings.Contains(err.Error(), "is neither a file nor a folder and cannot be uploaded") {
				t.Errorf("%s %s: %v", field, path, err)
			}
		}
	}
}
