//go:build linux

package runner_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/data/blobtest"
)

func TestStage(t *testing.T) {
	s := blobtest.New(t)
	s.Set(map[string]string{
		"code/train.py": "print('code')", "code/lib/__init__.py": "", "data/a.csv": "a", "data/sub/b.csv": "b", "one/file.txt": "one", "m/model.pkl": "pickle",
	})
	local := t.TempDir()
	if err := os.WriteFile(filepath.Join(local, "f"), []byte("local"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, `cat train.py; echo; find lib -type f; cat ${{inputs.folder}}/a.csv ${{inputs.folder}}/sub/b.csv ${{inputs.file}} ${{inputs.mounted}}/f ${{inputs.model}}/model.pkl; echo
echo ${{inputs.direct}} ${{inputs.n}} $[[--opt ${{inputs.opt}}]] "$AZURE_ML_INPUT_folder"
[ "$AZUREML_INPUT_folder" = "$AZURE_ML_INPUT_folder" ] || echo no AZUREML_INPUT_folder
test -w ${{inputs.folder}}/a.csv && stat -c %a ${{inputs.folder}}/a.csv
basename ${{inputs.file}}`)
	b.launch.Code = s.At("code")
	b.launch.Inputs = map[string]berth.LaunchInput{
		"folder":  {Type: "uri_folder", Mode: "ReadOnlyMount", URL: s.At("data")},
		"file":    {Type: "uri_file", Mode: "Download", URL: s.At("one/file.txt")},
		"mounted": {Type: "uri_folder", Mode: "ReadOnlyMount", URL: "file://" + local},
		"model":   {Type: "custom_model", Mode: "Download", URL: s.At("m/model.pkl")},
		"direct":  {Type: "uri_folder", Mode: "Direct", URL: s.At("data"), URI: "azureml://datastores/d/paths/x"},
		"n":       {Type: "literal", Value: "5"},
	}
	if exit := b.run(); !exit.OK() {
		t.Fatalf("exit %+v, log %s", exit, b.log())
	}
	folder := filepath.Join(b.options.Dir, "inputs", "folder")
	want := "print('code')\nlib/__init__.py\nabonelocalpickle\nazureml://datastores/d/paths/x 5  " + folder + "\n400\nfile.txt\n"
	if os.Getuid() != 0 {
		want = strings.Replace(want, "400\n", "", 1) // only root writes to it all the same
	}
	want = strings.Replace(want, "5  "+folder, "5 "+folder, 1) // the shell joins the words
	if diff := cmp.Diff(want, b.log()); diff != "" {
		t.Error(diff)
	}
	if b.reports[0].Phase != "staging" || b.reports[0].State != berth.TaskStarting {
		t.Errorf("first report %+v", b.reports[0])
	}
}

func TestStageErrors(t *testing.T) {
	s := blobtest.New(t)
	limit, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "f"), nil, 0o600), os.Symlink(outside, filepath.Join(limit, "code"))); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*berth.Launch)
		want   string
	}{
		{"code behind a link", func(l *berth.Launch) { l.Code, l.CodeBelow = "file://"+limit+"/code", limit }, "path escapes from parent"},
		{"no code", func(l *berth.Launch) { l.Code = s.At("none") }, "code: there is nothing at"},
		{"no data", func(l *berth.Launch) {
			l.Inputs = map[string]berth.LaunchInput{"d": {Type: "uri_folder", URL: s.At("none")}}
		}, "input d: there is nothing at"},
		{"no data where a user says", func(l *berth.Launch) {
			l.Inputs = map[string]berth.LaunchInput{"d": {Type: "uri_folder", URL: s.At("none"), URI: "azureml://datastores/lake/paths/none?sig=secret"}}
		}, "input d: there is nothing at azureml://datastores/lake/paths/none"},
		{"mode", func(l *berth.Launch) {
			l.Inputs = map[string]berth.LaunchInput{"d": {Type: "uri_folder", Mode: "Odd", URL: s.At("x")}}
		}, `input d: mode "Odd" is not known`},
		{"name", func(l *berth.Launch) {
			l.Inputs = map[string]berth.LaunchInput{"../d": {Type: "uri_folder", URL: s.At("x")}}
		}, `input name "../d" is not allowed`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "echo ran")
			tt.change(&b.launch)
			exit := b.run()
			if exit.Cause != "staging" || exit.Code != -1 || !strings.Contains(exit.Reason, tt.want) {
				t.Errorf("exit %+v, want %q", exit, tt.want)
			}
		})
	}
}

func TestOutputs(t *testing.T) {
	for _, code := range []string{"0", "3"} { // outputs of a failed command are kept too
		s := blobtest.New(t)
		b := newBench(t, `echo m >${{outputs.model}}/m.bin; mkdir ${{outputs.model}}/sub; echo n >"$AZURE_ML_OUTPUT_model"/sub/n; echo a >"$AZUREML_OUTPUT_model"/sub/a; echo f >${{outputs.file}}
echo o >outputs/o.txt; mkdir logs; echo l >logs/l.txt; echo ${{outputs.direct}}; exit `+code)
		b.launch.Artifacts = s.At("ExperimentRun/dcid.job")
		b.launch.Outputs = map[string]berth.LaunchOutput{
			"model":  {Type: "uri_folder", Mode: "ReadWriteMount", URL: s.At("job/model")},
			"file":   {Type: "uri_file", Mode: "Upload", URL: s.At("job/result.json/")},
			"direct": {Type: "uri_folder", Mode: "Direct", URL: s.At("job/direct"), URI: "azureml://x"},
			"empty":  {Type: "uri_folder", URL: s.At("job/empty")},
			"nofile": {Type: "uri_file", URL: s.At("job/nofile")},
		}
		exit := b.run()
		if exit.Cause != "" || b.log() != "azureml://x\n" {
			t.Errorf("exit %+v, log %s", exit, b.log())
		}
		want := map[string]string{
			"job/model/m.bin": "m\n", "job/model/sub/n": "n\n", "job/model/sub/a": "a\n", "job/result.json": "f\n",
			"ExperimentRun/dcid.job/outputs/o.txt": "o\n", "ExperimentRun/dcid.job/logs/l.txt": "l\n",
		}
		if diff := cmp.Diff(want, s.All("")); diff != "" {
			t.Error(diff)
		}
		if w := b.warnings(); !strings.Contains(w, "output nofile: the command wrote no file") {
			t.Errorf("warnings %q", w)
		}
		if last := b.reports[len(b.reports)-1]; last.Times.Uploading.IsZero() {
			t.Errorf("times %+v", last.Times)
		}
	}
}

func TestUploadRefused(t *testing.T) {
	s := blobtest.New(t)
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true }
	for command, want := range map[string]string{"echo x >outputs/x": "upload", "echo x >outputs/x; exit 2": ""} {
		b := newBench(t, command)
		b.launch.Artifacts = s.At("a")
		exit := b.run()
		if exit.Cause != want || exit.OK() {
			t.Errorf("%s: exit %+v", command, exit)
		}
	}
}

// TestUploadElsewhere: our own server is waited for, an address elsewhere that does not answer is
// given up, and the wait is told.
func TestUploadElsewhere(t *testing.T) {
	ours, far := blobtest.New(t), blobtest.New(t)
	far.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	b := newBench(t, "echo x >${{outputs.o}}/x")
	b.launch.Artifacts = ours.At("a")
	b.launch.Outputs = map[string]berth.LaunchOutput{"o": {Type: "uri_folder", URL: far.At("o")}}
	b.options.Patience = time.Millisecond
	if exit := b.run(); exit.Cause != "upload" || exit.OK() {
		t.Errorf("exit %+v", exit)
	}
	var told bool
	for _, r := range b.reports {
		told = told || strings.Contains(r.Warning, "output o is not kept yet")
	}
	if !told {
		t.Error("nobody was told what it waits for")
	}
}

// TestUploadResumes takes up a task that was in the middle of its uploads.
func TestUploadResumes(t *testing.T) {
	s := blobtest.New(t)
	b := newBench(t, "echo x >outputs/x; exit 4")
	b.launch.Artifacts = s.At("a")
	b.run()
	var exited runner.Mark
	for _, m := range b.marks {
		if m.Step == runner.StepExited {
			exited = m
		}
	}
	s.Set(map[string]string{"a/outputs/x": "already there"})
	if err := os.WriteFile(filepath.Join(b.options.Dir, "wd", "outputs", "y"), []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.options.Last = exited
	if exit := b.run(); exit.Code != 4 {
		t.Errorf("exit %+v", exit)
	}
	if diff := cmp.Diff(map[string]string{"x": "already there", "y": "y"}, s.All("a/outputs/")); diff != "" {
		t.Error(diff)
	}
}

func TestStopStaging(t *testing.T) {
	s := blobtest.New(t)
	asked := make(chan struct{})
	var n atomic.Int64
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if n.Add(1) == 1 {
			close(asked)
		}
		<-r.Context().Done()
		return true
	}
	b := newBench(t, "echo ran")
	b.launch.Code = s.At("code")
	go func() {
		<-asked
		b.control.Stop(runner.Stop{Grace: time.Second, Why: "enough"})
	}()
	if exit := b.run(); exit.Cause != "canceled" || exit.Reason != "enough" {
		t.Errorf("exit %+v", exit)
	}
}
