package client

import (
	"context"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// artifacts is a tree of files that the MLflow server keeps: a run's own, or those of a model that
// the run logged. MLflow 3 keeps the latter apart, and shows them in the run below the model's
// name.
type artifacts struct {
	below string // the name of the model, "" for the run's own
	list  string // how a folder is listed, up to its path
	file  string // how a file is read, up to its path
}

func ownArtifacts(run string) artifacts {
	id := url.QueryEscape(run)
	return artifacts{list: "api/2.0/mlflow/artifacts/list?run_id=" + id + "&path=", file: "get-artifact?run_id=" + id + "&path="}
}

func (m *LoggedModel) artifacts() artifacts {
	at := "api/2.0/mlflow/logged-models/" + url.PathEscape(m.ID) + "/artifacts/"
	return artifacts{below: m.Name, list: at + "directories?artifact_directory_path=", file: at + "files?artifact_file_path="}
}

// folder lists what is in a folder of a tree.
func (c *Client) folder(ctx context.Context, a artifacts, name string) ([]RunFile, error) {
	var out struct {
		Files []RunFile `json:"files"`
	}
	err := c.call(ctx, http.MethodGet, c.Workspace.TrackingPath()+"/"+a.list+url.QueryEscape(name), nil, &out)
	return append([]RunFile{}, out.Files...), err
}

// WalkArtifacts calls each for the files in and below a folder of a tree whose folders are listed
// one at a time; "" is the whole tree. The caller bounds the lists of servers that it does not
// trust.
func WalkArtifacts(at string, list func(folder string) ([]RunFile, error), each func(RunFile)) error {
	for todo := []string{at}; len(todo) > 0; todo = todo[1:] {
		folder := todo[0]
		entries, err := list(folder)
		if err != nil {
			return err
		}
		for _, f := range entries {
			switch {
			case f.Path == "" || folder != "" && !strings.HasPrefix(f.Path, folder+"/"):
				return berth.Errorf(berth.Invalid, "the list of folder %.500q has %.500q, which is not in it", folder, f.Path)
			case f.Dir:
				todo = append(todo, f.Path)
			default:
				each(f)
			}
		}
	}
	return nil
}

// files are those in and below a folder of a tree, or the one file that a path names; none where it
// names nothing. Their paths are those in the run.
func (c *Client) files(ctx context.Context, a artifacts, at string) ([]RunFile, error) {
	var out []RunFile
	add := func(f RunFile) {
		f.from, f.name = a, f.Path
		f.Path = path.Join(a.below, f.Path)
		out = append(out, f)
	}
	err := WalkArtifacts(at, func(folder string) ([]RunFile, error) { return c.folder(ctx, a, folder) }, add)
	if err != nil {
		return nil, err
	}
	if len(out) > 0 || at == "" {
		return out, nil
	}
	list, err := c.folder(ctx, a, strings.TrimPrefix(path.Dir("/"+at), "/"))
	for _, f := range list {
		if f.Path == at {
			add(f)
		}
	}
	return out, err
}

// OwnFiles lists all files that a run has itself, without those of models that it logged.
func (c *Client) OwnFiles(ctx context.Context, run string) ([]RunFile, error) {
	return c.files(ctx, ownArtifacts(run), "")
}

// ModelFiles lists all files of a logged model.
func (c *Client) ModelFiles(ctx context.Context, id string) ([]RunFile, error) {
	return c.files(ctx, (&LoggedModel{ID: id}).artifacts(), "")
}

// AllRunFiles lists the files in and below a folder of a run's artifacts, or the one file that a
// path names. Those of the models that the run logged are below the names of these; of several with
// one name the last logged is meant, and the others are found by their ids. That a path names
// nothing is NotFound.
func (c *Client) AllRunFiles(ctx context.Context, run, at string) ([]RunFile, error) {
	at = strings.Trim(path.Clean("/"+at), "/")
	out, err := c.files(ctx, ownArtifacts(run), at)
	if err != nil || len(out) > 0 && at != "" {
		return out, err
	}
	models, err := c.modelsInRun(ctx, run)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, f := range out {
		first, _, _ := strings.Cut(f.Path, "/")
		taken[first] = true
	}
	for _, m := range models {
		name, rest, _ := strings.Cut(at, "/")
		a := m.artifacts()
		switch {
		case at != "" && name == m.ID:
			a.below = m.ID
		case taken[m.Name] || at != "" && name != m.Name:
			continue
		}
		taken[a.below] = true
		more, err := c.files(ctx, a, rest)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if len(out) == 0 && at != "" {
		return nil, berth.Errorf(berth.NotFound, "run %s has no artifact %s; `berth runs artifacts %s` lists them", run, at, run)
	}
	return out, nil
}

// modelsInRun are the models that a run logged, the last logged first.
func (c *Client) modelsInRun(ctx context.Context, run string) ([]LoggedModel, error) {
	var out struct {
		Run Run `json:"run"`
	}
	if err := c.call(ctx, http.MethodGet, c.tracking("runs/get?run_id="+url.QueryEscape(run)), nil, &out); err != nil {
		return nil, err
	}
	return c.modelsOfRun(ctx, out.Run.Info.Experiment, run)
}

// DownloadRun copies files of a run's artifacts below the folder dir, as Download does: those in a
// folder under their names in it, a file that is named under its own.
func (c *Client) DownloadRun(ctx context.Context, run, at, dir string, progress func(done, total int64)) (Download, error) {
	files, err := c.AllRunFiles(ctx, run, at)
	if err != nil {
		return Download{}, err
	}
	at = strings.Trim(path.Clean("/"+at), "/")
	if len(files) == 0 {
		return Download{}, berth.Errorf(berth.NotFound, "run %s has no artifacts", run)
	}
	base := at + "/"
	if at == "" || len(files) == 1 && files[0].Path == at {
		base = strings.TrimLeft(path.Dir("/"+at)+"/", "/")
	}
	items, of := make([]blobItem, len(files)), map[string]RunFile{}
	for i, f := range files {
		items[i] = blobItem{Name: f.Path, Size: f.Size}
		of[f.Path] = f
	}
	open := func(ctx context.Context, name string, from int64, tag string) (*http.Response, error) {
		f := of[name]
		req, err := c.request(ctx, http.MethodGet, c.Workspace.TrackingPath()+"/"+f.from.file+url.QueryEscape(f.name), nil)
		if err != nil {
			return nil, err
		}
		if from > 0 {
			req.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
		}
		if tag != "" {
			req.Header.Set("If-Match", tag)
		}
		resp, err := c.do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
			defer resp.Body.Close() // opened for reading
			return nil, failure(resp)
		}
		return resp, nil
	}
	return c.fetchAll(ctx, open, items, base, dir, progress)
}
