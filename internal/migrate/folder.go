package migrate

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
)

// folder is what MLflow writes without a server: mlruns. Links are not followed out of it.
type folder struct {
	name string
	root *os.Root
}

// Folder is an mlruns folder.
func Folder(dir string) (Source, error) {
	if file, ok := strings.CutPrefix(dir, "sqlite:///"); ok || isFile(dir) && strings.HasSuffix(dir, ".db") {
		return nil, inDatabase(file)
	}
	root, err := os.OpenRoot(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noSource("there is no such folder; " + giveFolder)
	case isFile(dir):
		return nil, noSource("it is a file; " + giveFolder)
	case err != nil:
		return nil, berth.Errorf(berth.Invalid, "%s cannot be read: %w", dir, err)
	}
	f := &folder{root: root}
	if f.name, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	f.name = "file://" + filepath.ToSlash(f.name)
	list, err := f.Experiments(context.Background())
	if err != nil || !slices.ContainsFunc(list, func(e Experiment) bool { return e.Err == nil }) {
		for _, e := range list {
			err = errors.Join(err, e.Err)
		}
		for _, file := range []string{filepath.Join(dir, database), filepath.Join(filepath.Dir(filepath.Clean(dir)), database)} {
			if isFile(file) {
				return nil, inDatabase(file)
			}
		}
		if err != nil {
			return nil, errors.Join(berth.Errorf(berth.Invalid, "%s has no experiments that can be read", dir), err)
		}
		return nil, noSource("it has no experiments; " + giveFolder)
	}
	return f, nil
}

// giveFolder is the end of sentences about a path.
const giveFolder = "give the path of MLflow's mlruns folder, or of the folder it is in, or the address of an MLflow server (http:// or https://)"

// database is the file in which releases of MLflow 3 keep runs without a server. Only their files
// are in mlruns then.
const database = "mlflow.db"

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// inDatabase says how to import from a database.
func inDatabase(file string) error {
	return noSource("MLflow keeps these runs in the database %s: run `mlflow server --backend-store-uri sqlite:///%s --port 5000` and import with --from http://127.0.0.1:5000", file, filepath.ToSlash(file))
}

func (f *folder) Name() string { return f.name }

func (f *folder) Same(name string) bool {
	dir, ok := strings.CutPrefix(name, "file://")
	there, err := os.Stat(filepath.FromSlash(dir))
	here, err2 := f.root.Stat(".")
	return ok && err == nil && err2 == nil && os.SameFile(here, there)
}

// isDir says whether there is something of a name, which has to be a folder then.
func (f *folder) isDir(name string) (bool, error) {
	info, err := f.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		return false, err
	case info.Mode().IsRegular():
		return false, berth.Errorf(berth.Invalid, "%s is a file; MLflow has a folder there", name)
	}
	return info.IsDir(), special(name, info.Mode())
}

// An entry is something in a folder. What is neither a file nor a folder has err.
type entry struct {
	name, path string
	err        error
}

// entries are what is in a folder, none where there is no such folder.
func (f *folder) entries(dir string) ([]entry, error) {
	if ok, err := f.isDir(dir); err != nil || !ok {
		return nil, err
	}
	list, err := fs.ReadDir(f.root.FS(), dir)
	if err != nil {
		return nil, err
	}
	out := make([]entry, len(list))
	for i, d := range list {
		at := path.Join(dir, d.Name())
		out[i] = entry{d.Name(), at, special(at, d.Type())}
	}
	return out, nil
}

// maxMeta bounds a meta.yaml.
const maxMeta = 16 << 20

// meta reads meta.yaml of a folder; ok is false where there is none.
func (f *folder) meta(dir string, out any) (ok bool, err error) {
	name := path.Join(dir, "meta.yaml")
	info, err := f.root.Lstat(name)
	if err == nil {
		if err := special(name, info.Mode()); err != nil {
			return false, err
		}
		if info.IsDir() || info.Size() > maxMeta {
			return false, berth.Errorf(berth.Invalid, "%s is not a file of at most %d bytes", name, maxMeta)
		}
	}
	var b []byte
	if err == nil {
		b, err = fs.ReadFile(f.root.FS(), name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		return false, err
	}
	if err := yaml.Unmarshal(b, out); err != nil {
		return false, berth.Errorf(berth.Invalid, "%s/meta.yaml cannot be read: %w", dir, err)
	}
	return true, nil
}

// pairs are the files below a folder: names, which may have slashes, and what is in them. What
// cannot be read as one is added to left.
func (f *folder) pairs(dir string, left *[]error) (out []Pair, err error) {
	err = f.files(dir, func(name string, size int64, err error) error {
		if at := path.Join(dir, name); err == nil && size > maxMeta {
			err = berth.Errorf(berth.Invalid, "%s has more than %d bytes", at, maxMeta)
		}
		if err != nil {
			*left = append(*left, err)
			return nil
		}
		b, err := fs.ReadFile(f.root.FS(), path.Join(dir, name))
		out = append(out, Pair{name, string(b)})
		return err
	})
	return out, addLeft(err, left)
}

// addLeft adds errors of code Invalid to left and returns all others.
func addLeft(err error, left *[]error) error {
	if berth.CodeOf(err) != berth.Invalid {
		return err
	}
	*left = append(*left, err)
	return nil
}

// files calls each for the files below a folder, and with an error for what is neither a file nor a
// folder.
func (f *folder) files(dir string, each func(name string, size int64, err error) error) error {
	if ok, err := f.isDir(dir); err != nil || !ok {
		return err
	}
	return fs.WalkDir(f.root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(p, dir+"/")
		if err := special(p, d.Type()); err != nil {
			return each(name, 0, err)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return each(name, info.Size(), nil)
	})
}

func (f *folder) Experiments(context.Context) ([]Experiment, error) {
	list, err := f.entries(".")
	if err != nil {
		return nil, err
	}
	var out []Experiment
	for _, d := range list {
		if d.name == registry {
			continue
		}
		var e *Experiment
		err := d.err
		if err == nil {
			e, err = f.experiment(d.path)
		}
		if err != nil {
			e = &Experiment{ID: d.name, Name: d.name, Err: err}
		}
		if e != nil {
			out = append(out, *e)
		}
	}
	return out, nil
}

// experiment is the experiment of a folder, nil where there is none.
func (f *folder) experiment(dir string) (*Experiment, error) {
	var m struct {
		ID      string `yaml:"experiment_id"`
		Name    string `yaml:"name"`
		Created int64  `yaml:"creation_time"`
		Stage   string `yaml:"lifecycle_stage"`
	}
	if ok, err := f.meta(dir, &m); err != nil || !ok || m.ID == "" || m.Stage == "deleted" {
		return nil, err
	}
	e := &Experiment{ID: dir, Name: m.Name, Created: m.Created}
	var err error
	e.Tags, err = f.pairs(path.Join(dir, "tags"), &e.Left)
	return e, err
}

// runStatuses are the numbers that the files have for states.
var runStatuses = []string{"", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}

func (f *folder) Runs(_ context.Context, experiment string, each func(*Run) error) error {
	list, err := f.entries(experiment)
	if err != nil {
		return err
	}
	for _, d := range list {
		if d.name == "tags" || d.name == "models" { // of the experiment
			continue
		}
		var r *Run
		err := d.err
		if err == nil {
			r, err = f.run(d.path)
		}
		if err != nil {
			r = &Run{Err: err}
			r.Info.ID = d.name
		}
		if r != nil {
			if err := each(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *folder) ExperimentOf(_ context.Context, run string) (string, error) {
	if !fs.ValidPath(run) || strings.Contains(run, "/") {
		return "", berth.Errorf(berth.NotFound, "run %s is not there", run)
	}
	list, err := f.entries(".")
	if err != nil {
		return "", err
	}
	for _, d := range list {
		if ok, err := f.isDir(path.Join(d.path, run)); d.err == nil && err == nil && ok {
			return d.path, nil
		}
	}
	return "", berth.Errorf(berth.NotFound, "run %s is not there", run)
}

// run is the run of a folder, nil where there is none.
func (f *folder) run(dir string) (*Run, error) {
	var m struct {
		ID     string `yaml:"run_id"`
		Name   string `yaml:"run_name"`
		User   string `yaml:"user_id"`
		Status int    `yaml:"status"`
		Start  int64  `yaml:"start_time"`
		End    *int64 `yaml:"end_time"`
		URI    string `yaml:"artifact_uri"`
		Stage  string `yaml:"lifecycle_stage"`
	}
	if ok, err := f.meta(dir, &m); err != nil || !ok || m.ID == "" || m.Stage == "deleted" {
		return nil, err
	}
	if m.Status < 1 || m.Status >= len(runStatuses) {
		return nil, berth.Errorf(berth.Invalid, "%s/meta.yaml: %d is not an MLflow run status", dir, m.Status)
	}
	r := &Run{folder: path.Join(dir, "artifacts")}
	r.Info.ID, r.Info.Name, r.Info.User, r.Info.Status, r.Info.Start, r.Info.ArtifactURI = m.ID, m.Name, m.User, runStatuses[m.Status], m.Start, m.URI
	if m.End != nil {
		r.Info.End = *m.End
	}
	var err error
	if r.Data.Params, err = f.pairs(path.Join(dir, "params"), &r.Left); err != nil {
		return nil, err
	}
	if r.Data.Tags, err = f.pairs(path.Join(dir, "tags"), &r.Left); err != nil {
		return nil, err
	}
	err = f.files(path.Join(dir, "metrics"), func(name string, size int64, err error) error {
		if err != nil {
			r.Left = append(r.Left, err)
			return nil
		}
		// The size stands for the points: whether there are more than last time is all that is
		// asked.
		r.Data.Metrics = append(r.Data.Metrics, Metric{Key: name, Step: size})
		return nil
	})
	return r, addLeft(err, &r.Left)
}

// History reads lines of timestamp, value and step.
func (f *folder) History(_ context.Context, run *Run, key string, each func([]Metric) error) error {
	name := path.Join(path.Dir(run.folder), "metrics", key)
	file, err := f.root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	var some []Metric
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		w := strings.Fields(lines.Text())
		if len(w) == 0 {
			continue
		}
		m := Metric{Key: key}
		err := errors.New("expected a timestamp and a value")
		if len(w) >= 2 {
			if m.Timestamp, err = strconv.ParseInt(w[0], 10, 64); err == nil {
				m.Value, err = valueOf(w[1])
			}
			if err == nil && len(w) > 2 {
				m.Step, err = strconv.ParseInt(w[2], 10, 64)
			}
		}
		if err != nil { // the last line of a process that was killed, mostly
			return errors.Join(each(some), berth.Errorf(berth.Invalid, "%s, line %d: %w", name, n, err))
		}
		some = append(some, m)
		if len(some) == 25_000 {
			if err := each(some); err != nil {
				return err
			}
			some = some[:0]
		}
	}
	if err := lines.Err(); err != nil {
		return errors.Join(each(some), berth.Errorf(berth.Invalid, "%s: %w", name, err))
	}
	return each(some)
}

// valueOf is a number as the API takes it.
func valueOf(text string) (any, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, err
	}
	switch {
	case v != v: //nolint:gocritic // is it NaN
		return "NaN", nil
	case v > math.MaxFloat64:
		return "Infinity", nil
	case v < -math.MaxFloat64:
		return "-Infinity", nil
	}
	return v, nil
}

func (f *folder) Files(_ context.Context, of Owner) (out []File, err error) {
	err = f.files(of.folder, func(name string, size int64, err error) error {
		out = append(out, File{Path: name, Size: size, Err: cmp.Or(err, checkPath(name))})
		return nil
	})
	return out, err
}

func (f *folder) Open(_ context.Context, of Owner, file File) (io.ReadCloser, error) {
	return f.root.Open(path.Join(of.folder, file.Path))
}
