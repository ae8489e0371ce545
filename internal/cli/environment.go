package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// anonymous is where Azure's clients put environments without a name; the version is a hash of the
// content.
const anonymous = "CliV2AnonymousEnvironment"

// environment is the id of the environment that --environment names by a word, "" for none.
func (s *session) environment(ctx context.Context, c *client.Client, text string) (string, error) {
	switch text {
	case "", "none":
		return "", nil
	case "python":
		return s.condaEnvironment(ctx, c, "name: python\ndependencies:\n- python\n")
	}
	if image, ok := strings.CutPrefix(text, imageScheme); ok {
		return s.anonymousEnvironment(ctx, c, map[string]any{"image": image})
	}
	near := nearFile(text)
	if strings.ContainsAny(text, `/\`) && !strings.Contains(text, ":") || isFileName(text) || near != "" {
		return "", berth.Errorf(berth.Invalid, "--environment: %s: there is no such file%s", text, near)
	}
	if strings.Contains(text, "/") && !strings.HasPrefix(text, "azureml:") && !strings.HasPrefix(text, "/") {
		return "", usagef("--environment %s: an image is named %s%s", text, imageScheme, text)
	}
	ref, err := berth.ParseRef(text, "environments")
	if err != nil {
		return "", err
	}
	if ref.Version == "" && ref.Registry == "" {
		label := ref.Label
		if label == "" {
			label = "latest"
		}
		return "azureml:" + ref.Name + "@" + label, nil
	}
	return ref.ID(c.Workspace), nil
}

// imageScheme begins the name of a container image.
const imageScheme = "docker://"

// nearFile names the file of the folder that was probably meant by one that is not there.
func nearFile(text string) string {
	if filepath.Ext(text) == "" {
		return ""
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(text), "*.*"))
	if err != nil {
		return ""
	}
	files = slices.DeleteFunc(files, func(f string) bool { return !isFileName(f) })
	if near := nearest(filepath.Clean(text), files); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

func isFileName(text string) bool {
	switch strings.ToLower(filepath.Ext(text)) {
	case ".yml", ".yaml", ".txt", ".toml", ".lock":
		return true
	}
	return false
}

// environmentFile takes a conda file, a list of pip requirements, or the YAML of an environment.
func (s *session) environmentFile(ctx context.Context, c *client.Client, path string) (string, error) {
	b, err := spec.ReadFile(path)
	if err != nil {
		return "", berth.Errorf(berth.Invalid, "--environment: %w", err)
	}
	switch {
	case strings.EqualFold(filepath.Ext(path), ".txt"):
		q, err := readRequirements(path)
		if err != nil {
			return "", err
		}
		return s.condaEnvironment(ctx, c, q.conda(path))
	case isConda(b):
		return s.condaEnvironment(ctx, c, string(b))
	}
	r, err := spec.Load(path, spec.Options{Kind: "environment", Workspace: c.Workspace, Links: followLinks()})
	if err != nil {
		return "", err
	}
	// As in a job's YAML, the file is read and no more: what is called by its name stays as it was
	// registered.
	main := r.Main()
	body, err := s.fill(ctx, c, main)
	if err != nil {
		return "", err
	}
	main.Uploads = nil
	var doc client.Document
	if err := json.Unmarshal(body, &doc); err != nil {
		return "", err
	}
	doc.Properties()["isAnonymous"] = true
	if main.Body, err = json.Marshal(doc); err != nil {
		return "", err
	}
	h := sha256.Sum256(main.Body)
	main.Name, main.Version = anonymous, hex.EncodeToString(h[:16])
	d, err := s.apply(ctx, c, r)
	return d.ID(), err
}

// isConda reports whether a YAML file is conda's: it has dependencies at the top.
func isConda(b []byte) bool {
	return bytes.HasPrefix(b, []byte("dependencies:")) || bytes.Contains(b, []byte("\ndependencies:"))
}

func (s *session) condaEnvironment(ctx context.Context, c *client.Client, conda string) (string, error) {
	return s.anonymousEnvironment(ctx, c, map[string]any{"condaFile": conda})
}

// anonymousEnvironment makes an environment without a name; its version is a hash of what it is.
func (s *session) anonymousEnvironment(ctx context.Context, c *client.Client, props map[string]any) (string, error) {
	text, err := json.Marshal(props)
	if err != nil {
		return "", err
	}
	if conda, ok := props["condaFile"].(string); ok { // whose hash is the file's
		text = []byte(conda)
	}
	h := sha256.Sum256(text)
	props["isAnonymous"], props["isArchived"] = true, false
	d, err := c.Put(ctx, map[string]any{"properties": props}, "environments", anonymous, "versions", hex.EncodeToString(h[:16]))
	return d.ID(), err
}
