package cli

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// inputDocs are the --input flags as the job's inputs. Local files and folders are uploaded.
func (r *bareRun) inputDocs(ctx context.Context, c *client.Client) (map[string]any, error) {
	docs := map[string]any{}
	for _, in := range r.inputs {
		name, value, ok := strings.Cut(in, "=")
		if !ok {
			return nil, usagef("--input %s: give NAME=PATH, NAME=URI or NAME=VALUE", in)
		}
		if err := berth.CheckName("input", name); err != nil {
			return nil, usagef("--input %s: %v", in, err)
		}
		if _, ok := docs[name]; ok {
			return nil, usagef("--input %s: the name %s is given twice", in, name)
		}
		doc, err := r.inputDoc(ctx, c, value)
		if err != nil {
			return nil, err
		}
		docs[name] = doc
	}
	return docs, nil
}

func (r *bareRun) inputDoc(ctx context.Context, c *client.Client, value string) (map[string]any, error) {
	if strings.HasPrefix(value, "azureml:") || strings.Contains(value, "://") {
		typ, err := uriType(ctx, c, value)
		return map[string]any{"jobInputType": typ, "uri": value}, err
	}
	st, err := os.Stat(value)
	if err != nil {
		if value != "" && (strings.HasPrefix(value, ".") && strings.Contains(value, "/") || filepath.IsAbs(value)) {
			return nil, berth.Errorf(berth.Invalid, "--input: %s: there is no such file or folder", value)
		}
		return map[string]any{"jobInputType": "literal", "value": value}, nil
	}
	if value == "" {
		return map[string]any{"jobInputType": "literal", "value": value}, nil
	}
	abs, err := filepath.Abs(value)
	if err != nil {
		return nil, err
	}
	typ := "uri_file"
	if st.IsDir() {
		typ = "uri_folder"
	}
	if r.dryRun {
		return map[string]any{"jobInputType": typ, "uri": "local:" + abs}, nil
	}
	uri, err := r.s.uploadData(ctx, c, spec.Upload{Path: abs, Kind: "data", Type: typ, Links: followLinks()})
	return map[string]any{"jobInputType": typ, "uri": uri}, err
}

// uriType guesses whether a URI names a file or a folder; an asset says so itself.
func uriType(ctx context.Context, c *client.Client, uri string) (string, error) {
	if strings.HasPrefix(uri, "azureml:") && !strings.HasPrefix(uri, "azureml://") {
		ref, err := berth.ParseRef(uri, "data")
		if err != nil || ref.Registry != "" {
			return "uri_folder", err
		}
		segments := []string{ref.Collection, ref.Name, "versions", ref.Version}
		if ref.Version == "" {
			segments = []string{ref.Collection, ref.Name, "labels", "latest"}
		}
		d, err := c.Get(ctx, segments...)
		if err != nil {
			return "", err
		}
		for _, key := range []string{"dataType", "modelType"} {
			if t, ok := d.Properties()[key].(string); ok {
				return t, nil
			}
		}
		return "uri_folder", nil
	}
	clean, _, _ := strings.Cut(uri, "?")
	if !strings.HasSuffix(clean, "/") && (path.Ext(clean) != "" || plainHTTP(clean)) {
		return "uri_file", nil
	}
	return "uri_folder", nil
}

// plainHTTP reports whether a URI is a web server's, which has no folders, and not a storage
// account's.
func plainHTTP(uri string) bool {
	return (strings.HasPrefix(uri, "https://") || strings.HasPrefix(uri, "http://")) && !strings.Contains(uri, ".blob.") && !strings.Contains(uri, ".dfs.")
}
