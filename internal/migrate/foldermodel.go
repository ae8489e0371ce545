package migrate

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

func (f *folder) LoggedModels(_ context.Context, experiment string, each func(*LoggedModel) error) error {
	dir := path.Join(experiment, "models")
	list, err := f.entries(dir)
	if err != nil {
		return err
	}
	for _, d := range list {
		var m *LoggedModel
		err := d.err
		if err == nil {
			m, err = f.loggedModel(d.path)
		}
		if err != nil {
			m = &LoggedModel{Err: err}
			m.Info.ID = d.name
		}
		if m != nil {
			if err := each(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// loggedStatuses are the states of logged models by the numbers that the files have for them.
var loggedStatuses = []string{"", "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"}

// loggedStatus is the state of a logged model as the API has it. Releases of MLflow differ in
// whether the files have its number or its name.
func loggedStatus(written any) (string, bool) {
	switch v := written.(type) {
	case nil:
		return "", true
	case int:
		if 0 <= v && v < len(loggedStatuses) {
			return loggedStatuses[v], true
		}
	case string:
		i := slices.Index([]string{"UNSPECIFIED", "PENDING", "READY", "FAILED"}, v)
		if i < 0 {
			return v, v != "" && slices.Contains(loggedStatuses, v)
		}
		return loggedStatuses[i], true
	}
	return "", false
}

// loggedModel is the logged model of a folder, nil where there is none.
func (f *folder) loggedModel(dir string) (*LoggedModel, error) {
	var m struct {
		ID      string `yaml:"model_id"`
		Name    string `yaml:"name"`
		Type    string `yaml:"model_type"`
		Run     string `yaml:"source_run_id"`
		Created int64  `yaml:"creation_timestamp"`
		Updated int64  `yaml:"last_updated_timestamp"`
		Status  any    `yaml:"status"`
		Message string `yaml:"status_message"`
		Stage   string `yaml:"lifecycle_stage"`
	}
	if ok, err := f.meta(dir, &m); err != nil || !ok || m.ID == "" || m.Stage == "deleted" {
		return nil, err
	}
	status, ok := loggedStatus(m.Status)
	if !ok {
		return nil, berth.Errorf(berth.Invalid, "%s/meta.yaml: %v is not the status of a logged model", dir, m.Status)
	}
	x := &LoggedModel{folder: path.Join(dir, "artifacts")}
	x.Info.ID, x.Info.Name, x.Info.Type, x.Info.Run, x.Info.Created, x.Info.Updated = m.ID, m.Name, m.Type, m.Run, m.Created, m.Updated
	x.Info.Status, x.Info.Message = status, m.Message
	var err error
	if x.Info.Tags, err = f.pairs(path.Join(dir, "tags"), &x.Left); err != nil {
		return nil, err
	}
	x.Data.Params, err = f.pairs(path.Join(dir, "params"), &x.Left)
	return x, err
}

// registry is the folder of registered models, among those of experiments.
const registry = "models"

func (f *folder) Models(_ context.Context, each func(*Model) error) error {
	list, err := f.entries(registry)
	if err != nil {
		return err
	}
	for _, d := range list {
		var m *Model
		err := d.err
		if err == nil {
			m, err = f.model(d.path)
		}
		if err != nil {
			m = &Model{Name: d.name, Err: err}
		}
		if m != nil {
			if err := each(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// model is the registered model of a folder, nil where there is none.
func (f *folder) model(dir string) (*Model, error) {
	var meta struct {
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
	}
	if ok, err := f.meta(dir, &meta); err != nil || !ok {
		return nil, err
	}
	m := &Model{Name: meta.Name, Description: meta.Description, Aliases: map[string]string{}}
	var err error
	if m.Tags, err = f.pairs(path.Join(dir, "tags"), &m.Left); err != nil {
		return nil, err
	}
	aliases, err := f.pairs(path.Join(dir, "aliases"), &m.Left)
	if err != nil {
		return nil, err
	}
	for _, a := range aliases {
		m.Aliases[a.Key] = strings.TrimSpace(a.Value)
	}
	m.Versions, err = f.versions(dir)
	return m, err
}

func (f *folder) versions(dir string) (out []Version, err error) {
	list, err := f.entries(dir)
	if err != nil {
		return nil, err
	}
	for _, d := range list {
		n, isVersion := strings.CutPrefix(d.name, "version-")
		number, err := strconv.Atoi(n)
		if !isVersion || err != nil {
			continue
		}
		var v *Version
		if err = d.err; err == nil {
			v, err = f.version(d.path)
		}
		if err != nil {
			v = &Version{Err: err}
		}
		if v != nil {
			v.Number = number
			out = append(out, *v)
		}
	}
	slices.SortFunc(out, func(a, b Version) int { return a.Number - b.Number })
	return out, nil
}

// version is the version of a folder, nil where there is none.
func (f *folder) version(dir string) (*Version, error) {
	var m struct {
		Description string `yaml:"description"`
		Source      string `yaml:"source"`
		Storage     string `yaml:"storage_location"`
		Run         string `yaml:"run_id"`
		LoggedModel string `yaml:"model_id"`
		Stage       string `yaml:"current_stage"`
	}
	if ok, err := f.meta(dir, &m); err != nil || !ok || m.Stage == "Deleted_Internal" {
		return nil, err
	}
	v := &Version{Description: m.Description, Source: m.Source, Run: m.Run, LoggedModel: m.LoggedModel, Stage: m.Stage}
	if v.ofVersion() {
		v.Storage = m.Storage
	}
	var err error
	v.Tags, err = f.pairs(path.Join(dir, "tags"), &v.Left)
	return v, err
}
