package migrate

import (
	"bufio"
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
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "%s is neither the URL of an MLflow server nor a folder: %w", dir, err)
	}
	f := &folder{root: root}
	if f.name, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	f.name = "file://" + filepath.ToSlash(f.name)
	if list, err := f.Experiments(context.Background()); err != nil || len(list) == 0 {
		return nil, errors.Join(berth.Errorf(berth.Invalid, "%s has no experiments; give the path of MLflow's mlruns folder", dir), err)
	}
	return f, nil
}

func (f *folder) Name() string { return f.name }

// entries are the names in a folder, none where there is no such folder.
func (f *folder) entries(dir string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(f.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}

// meta reads meta.yaml of a folder; ok is false where there is none.
func (f *folder) meta(dir string, out any) (ok bool, err error) {
	b, err := fs.ReadFile(f.root.FS(), path.Join(dir, "meta.yaml"))
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

// pairs are the files below a folder: names, which may have slashes, and what is in them.
func (f *folder) pairs(dir string) (out []Pair, err error) {
	err = f.files(dir, func(name string, _ int64) error {
		b, err := fs.ReadFile(f.root.FS(), path.Join(dir, name))
		out = append(out, Pair{name, string(b)})
		return err
	})
	return out, err
}

// files calls each for the files below a folder.
func (f *folder) files(dir string, each func(name string, size int64) error) error {
	return fs.WalkDir(f.root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && p == dir {
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return each(strings.TrimPrefix(p, dir+"/"), info.Size())
	})
}

func (f *folder) Experiments(context.Context) ([]Experiment, error) {
	list, err := f.entries(".")
	if err != nil {
		return nil, err
	}
	var out []Experiment
	for _, d := range list {
		var m struct {
			ID    string `yaml:"experiment_id"`
			Name  string `yaml:"name"`
			Stage string `yaml:"lifecycle_stage"`
		}
		if ok, err := f.meta(d.Name(), &m); err != nil {
			return nil, err
		} else if !ok || m.ID == "" || m.Stage == "deleted" {
			continue
		}
		e := Experiment{ID: d.Name(), Name: m.Name}
		if e.Tags, err = f.pairs(path.Join(d.Name(), "tags")); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// runStatuses are the numbers that the files have for states.
var runStatuses = []string{"", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}

func (f *folder) Runs(_ context.Context, experiment string, each func(*Run) error) error {
	list, err := f.entries(experiment)
	if err != nil {
		return err
	}
	for _, d := range list {
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
		dir := path.Join(experiment, d.Name())
		if ok, err := f.meta(dir, &m); err != nil {
			return err
		} else if !ok || m.ID == "" || m.Stage == "deleted" {
			continue
		}
		if m.Status < 1 || m.Status >= len(runStatuses) {
			return berth.Errorf(berth.Invalid, "%s/meta.yaml: %d is not an MLflow run status", dir, m.Status)
		}
		r := &Run{folder: path.Join(dir, "artifacts")}
		r.Info.ID, r.Info.Name, r.Info.User, r.Info.Status, r.Info.Start, r.Info.ArtifactURI = m.ID, m.Name, m.User, runStatuses[m.Status], m.Start, m.URI
		if m.End != nil {
			r.Info.End = *m.End
		}
		if r.Data.Params, err = f.pairs(path.Join(dir, "params")); err != nil {
			return err
		}
		if r.Data.Tags, err = f.pairs(path.Join(dir, "tags")); err != nil {
			return err
		}
		err := f.files(path.Join(dir, "metrics"), func(name string, size int64) error {
			// The size stands for the points: whether there are more than last time is all that is
			// asked.
			r.Data.Metrics = append(r.Data.Metrics, Metric{Key: name, Step: size})
			return nil
		})
		if err == nil {
			err = each(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
		if err != nil {
			return berth.Errorf(berth.Invalid, "%s, line %d: %w", name, n, err)
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
		return err
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

func (f *folder) LoggedModels(_ context.Context, experiment string, each func(*LoggedModel) error) error {
	dir := path.Join(experiment, "models")
	list, err := f.entries(dir)
	if err != nil {
		return err
	}
	for _, d := range list {
		var m struct {
			ID      string `yaml:"model_id"`
			Name    string `yaml:"name"`
			Type    string `yaml:"model_type"`
			Run     string `yaml:"source_run_id"`
			Created int64  `yaml:"creation_timestamp"`
			Updated int64  `yaml:"last_updated_timestamp"`
			Stage   string `yaml:"lifecycle_stage"`
		}
		at := path.Join(dir, d.Name())
		if ok, err := f.meta(at, &m); err != nil {
			return err
		} else if !ok || m.ID == "" || m.Stage == "deleted" {
			continue
		}
		x := &LoggedModel{folder: path.Join(at, "artifacts")}
		x.Info.ID, x.Info.Name, x.Info.Type, x.Info.Run, x.Info.Created, x.Info.Updated = m.ID, m.Name, m.Type, m.Run, m.Created, m.Updated
		if x.Info.Tags, err = f.pairs(path.Join(at, "tags")); err != nil {
			return err
		}
		if x.Data.Params, err = f.pairs(path.Join(at, "params")); err != nil {
			return err
		}
		if err := each(x); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) Models(_ context.Context, each func(*Model) error) error {
	list, err := f.entries("models")
	if err != nil {
		return err
	}
	for _, d := range list {
		dir := path.Join("models", d.Name())
		var meta struct {
			Name        string `yaml:"name"`
			Description string `yaml:"description"`
		}
		if ok, err := f.meta(dir, &meta); err != nil {
			return err
		} else if !ok {
			continue
		}
		m := &Model{Name: meta.Name, Description: meta.Description, Aliases: map[string]string{}}
		if m.Tags, err = f.pairs(path.Join(dir, "tags")); err != nil {
			return err
		}
		aliases, err := f.pairs(path.Join(dir, "aliases"))
		if err != nil {
			return err
		}
		for _, a := range aliases {
			m.Aliases[a.Key] = strings.TrimSpace(a.Value)
		}
		if m.Versions, err = f.versions(dir); err != nil {
			return err
		}
		if err := each(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) versions(dir string) (out []Version, err error) {
	list, err := f.entries(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		n, isVersion := strings.CutPrefix(d.Name(), "version-")
		number, err := strconv.Atoi(n)
		if !isVersion || err != nil {
			continue
		}
		var m struct {
			Description string `yaml:"description"`
			Source      string `yaml:"source"`
			Storage     string `yaml:"storage_location"`
			Run         string `yaml:"run_id"`
			LoggedModel string `yaml:"model_id"`
			Stage       string `yaml:"current_stage"`
		}
		at := path.Join(dir, d.Name())
		if ok, err := f.meta(at, &m); err != nil {
			return nil, err
		} else if !ok || m.Stage == "Deleted_Internal" {
			continue
		}
		v := Version{Number: number, Description: m.Description, Source: m.Source, Run: m.Run, LoggedModel: m.LoggedModel, Stage: m.Stage}
		if strings.HasPrefix(v.Source, "models:/") && v.LoggedModel == "" && m.Storage != "" {
			v.Source = m.Storage
		}
		if v.Tags, err = f.pairs(path.Join(at, "tags")); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Version) int { return a.Number - b.Number })
	return out, nil
}

func (f *folder) Files(_ context.Context, of Owner) (out []File, err error) {
	err = f.files(of.folder, func(name string, size int64) error {
		out = append(out, File{name, size})
		return nil
	})
	return out, err
}

func (f *folder) Open(_ context.Context, of Owner, name string) (io.ReadCloser, error) {
	return f.root.Open(path.Join(of.folder, name))
}
