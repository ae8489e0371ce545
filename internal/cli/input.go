package cli

import (
	"cmp"
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
		typ, uri, err := uriType(ctx, c, value)
		return map[string]any{"jobInputType": typ, "uri": uri}, err
	}
	value = homePath(value)
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

// homePath is a path with the user's home in place of ~ at its beginning, which a shell leaves as
// it is after NAME=.
func homePath(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// uriType guesses whether a URI names a file or a folder; an asset says so itself. The URI of a
// model that is named as data are is its id.
func uriType(ctx context.Context, c *client.Client, text string) (typ, uri string, err error) {
	if strings.HasPrefix(text, "azureml:") && !strings.HasPrefix(text, "azureml://") {
		ref, err := berth.ParseRef(text, "data")
		if err != nil || ref.Registry != "" {
			return "uri_folder", text, err
		}
		d, err := assetNamed(ctx, c, ref)
		if berth.CodeOf(err) == berth.NotFound && ref.Collection == "data" {
			ref.Collection = "models"
			if d, err = assetNamed(ctx, c, ref); err == nil {
				text = d.ID()
			}
		}
		if berth.CodeOf(err) == berth.NotFound {
			return "uri_folder", text, nil // the server says what there is instead
		}
		if err != nil {
			return "", "", err
		}
		for _, key := range []string{"dataType", "modelType"} {
			if t, ok := d.Properties()[key].(string); ok {
				return t, text, nil
			}
		}
		return "uri_folder", text, nil
	}
	clean, _, _ := strings.Cut(text, "?")
	if !strings.HasSuffix(clean, "/") && (path.Ext(clean) != "" || plainHTTP(clean)) {
		return "uri_file", text, nil
	}
	if strings.HasPrefix(text, "azureml://") && !strings.HasSuffix(text, "/") && c.IsFile(ctx, text) {
		return "uri_file", text, nil
	}
	return "uri_folder", text, nil
}

// assetNamed is the version of an asset that a reference names.
func assetNamed(ctx context.Context, c *client.Client, ref berth.Ref) (client.Document, error) {
	if ref.Version == "" {
		return c.Get(ctx, ref.Collection, ref.Name, "labels", cmp.Or(ref.Label, "latest"))
	}
	return c.Get(ctx, ref.Collection, ref.Name, "versions", ref.Version)
}

// plainHTTP reports whether a URI is a web server's, which has no folders, and not a storage
// account's.
func plainHTTP(uri string) bool {
	return (strings.HasPrefix(uri, "https://") || strings.HasPrefix(uri, "http://")) && !strings.Contains(uri, ".blob.") && !strings.Contains(uri, ".dfs.")
}
