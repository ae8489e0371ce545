package spec

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"sort"

	"github.com/berthml/berth"
)

// Options say how a file is to be read.
type Options struct {
	// Kind is what the file is: job, component, compute, environment, data, datastore, model, code,
	// workspace, … (see Kinds). Empty means job, unless $schema or the keys name another kind.
	Kind string
	// Set are overrides a.b.c=value of the outer file, applied in order before it is checked.
	Set []string
	// File is what to call the document in messages; Load fills it in.
	File string
	// Dir is where relative paths of LoadBytes start; the working directory when empty. Load uses
	// the file's folder.
	Dir string
	// Workspace is where short references point to. The zero Workspace stands for placeholders:
	// sub, rg, ws.
	Workspace berth.Workspace
	// Name and Version override those of the file.
	Name, Version string
	// Experiment is the experiment of jobs that name none; the name of the working directory, as a
	// rule.
	Experiment string
	// Bare lets command jobs have no environment, as those of `berth run`.
	Bare bool
	// Links allows links that lead out of the folders that are uploaded.
	Links bool
	// JobTypes and ComputeTypes are those that the server knows, in lower case. One that has no
	// table here is read in a form that fits all.
	JobTypes, ComputeTypes []string
}

// Result is what a file becomes.
type Result struct {
	// Resources are the documents to PUT, dependencies first; the last is the thing itself.
	Resources []Resource
	// Warnings are places where the file is accepted but probably does not say what was meant.
	Warnings Errors
}

// Main is the resource the file describes.
func (r *Result) Main() *Resource { return &r.Resources[len(r.Resources)-1] }

// Resource is one document to PUT.
type Resource struct {
	// Type is the REST collection: jobs, environments, data, models, components, computes,
	// datastores, workspaces, onlineEndpoints/deployments, …
	Type string
	// Parent is the endpoint of a deployment.
	Parent string
	// Name is empty when the client is to invent one (jobs), Version when the next one is meant.
	Name, Version string
	// Body is the document. Where an upload's URI or id belongs it holds the upload's placeholder:
	// see Fill.
	Body json.RawMessage
	// Uploads are what must be uploaded before Body can be sent.
	Uploads []Upload
	// Anonymous says that the client made name and version from the content.
	Anonymous bool
}

// Upload is a local file or folder a document refers to.
type Upload struct {
	Placeholder string // what Body holds in its place
	Path        string // absolute; empty for code that consists of its includes
	// Kind is code (becomes a code asset; the placeholder stands for its id), data, model or
	// context (a Docker build context); for these the placeholder stands for a URI.
	Kind string
	// Type is the type of data: uri_file, uri_folder, mltable.
	Type string
	// Datastore is where to put it when the file says so.
	Datastore string
	// Includes are absolute paths of further files and folders to be copied into the snapshot of
	// code.
	Includes []string
	// Ignore are patterns to leave out beside those of the folder's ignore file.
	Ignore []string
	// Links allows links that lead out of the folder; they are followed.
	Links bool
	// Index is a folder in which hashes of folders are remembered, so that one that was not changed
	// is not read again; empty for none.
	Index string
	// At is where the file names it, for messages.
	At Error
}

// Load reads the YAML file at path. A file that is wrong gives Errors, all of them at once.
func Load(path string, o Options) (*Result, error) {
	if o.File == "" {
		o.File = path
	}
	v, err := open(path, o.File)
	if err != nil {
		return nil, err
	}
	return translate(v, o)
}

// LoadBytes is Load for text that is not in a file.
func LoadBytes(text []byte, o Options) (*Result, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "folder %s: %w", o.Dir, err)
	}
	v, err := decode(text, &document{name: o.File, dir: dir})
	if err != nil {
		return nil, err
	}
	return translate(v, o)
}

func translate(v *value, o Options) (*Result, error) {
	if o.Workspace == (berth.Workspace{}) {
		o.Workspace = berth.Workspace{Subscription: "sub", Group: "rg", Name: "ws"}
	}
	l := &load{options: o, known: map[string]*draft{}, files: map[string]*value{}, parts: map[used]string{}, strays: map[string]bool{}, components: componentTypes(), draw: draw.read}
	l.warnings = append(l.warnings, v.doc.twice...)
	before := aimOf(v)
	if errs := override(v, o.Set); len(errs) > 0 {
		return nil, errs
	}
	word := o.Kind
	if word == "" {
		word = guess(v)
	}
	if word == "job" && len(o.Set) > 0 {
		errs, warnings := before.check(v, o.Set)
		if len(errs) > 0 {
			return nil, errs
		}
		l.warnings = append(l.warnings, warnings...)
	}
	k, ok := kindOf(word)
	if !ok {
		if why := elsewhere.get()[word]; why != "" {
			return nil, Errors{{File: o.File, Msg: why}}
		}
		return nil, Errors{{File: o.File, Msg: "unknown kind " + word, Suggest: nearest(word, Kinds())}}
	}
	if o.Name != "" {
		v = v.with("name", v.newText(o.Name))
	}
	if o.Version != "" {
		v = v.with("version", v.newText(o.Version))
	}
	k.make(l, v)
	if e, ok := misplaced(v, o); ok && word == "job" && len(l.errs) > 0 {
		return nil, Errors{e}
	}
	if len(l.errs) > 0 {
		return nil, l.errs.tidy()
	}
	return l.result()
}

// result turns the drafts into Resources.
func (l *load) result() (*Result, error) {
	for _, path := range slices.Sorted(maps.Keys(l.files)) {
		l.warnings = append(l.warnings, l.files[path].doc.twice...)
	}
	r := &Result{Warnings: l.warnings.tidy()}
	for _, d := range l.made {
		body, err := encode(d.body)
		if err != nil {
			return nil, berth.Errorf(berth.Internal, "writing %s/%s: %w", d.collection, d.name, err)
		}
		r.Resources = append(r.Resources, Resource{
			Type: d.collection, Parent: d.parent, Name: d.name, Version: d.version,
			Body: body, Uploads: d.uploads, Anonymous: d.anonymous,
		})
	}
	return r, nil
}

// kind is a sort of file: the collection it goes to and the table of its body.
type kind struct {
	word       string
	collection string
	base       string // the member of the body its table writes to; "" is the body itself
	body       typ
	// finish adds what the body has beyond its fields.
	finish func(s *scope, v *value)
}

// make reads v as this kind and adds it to the load, after what it needs.
func (k kind) make(l *load, v *value) {
	d := &draft{collection: k.collection, body: tree{}}
	s := &scope{load: l, draft: d, out: d.body}
	k.fill(s, v)
	l.made = append(l.made, d)
}

func (k kind) fill(s *scope, v *value) {
	if k.base != "" {
		s = s.into(s.out.sub(k.base))
	}
	switch t := k.body; {
	case t.table != nil:
		t.table.fill(s, v)
	default:
		t.read(s, v)
	}
	if k.finish != nil {
		k.finish(s, v)
	}
}

// Kinds are the words Options.Kind takes.
func Kinds() []string {
	var words []string
	for _, k := range kinds() {
		words = append(words, k.word)
	}
	sort.Strings(words)
	return words
}

// elsewhere are files of Azure ML that are no resource of their own, and what they are.
var elsewhere = lazy[map[string]string]{make: func() map[string]string {
	return map[string]string{
		"asset_manifest":     "an asset manifest creates nothing; use the files it lists",
		"component-internal": "internal components are not supported; write a command component",
		"conda":              "a conda file is not a resource; refer to it with conda_file in an environment",
		"data_import":        "data imports from databases and file systems are not supported; download the data and create a data asset from it",
		"feature_set_spec":   "a feature set specification is not a resource; refer to its folder with specification.path in a feature set",
		"mlmodel":            "an MLmodel file is not a resource; refer to its folder with path in a model",
		"mltable":            "an MLTable file is not a resource; refer to its folder with path in data of type mltable",
		"model_package":      "model packages are not supported",
		"promptflow":         "prompt flows are not supported",
		"rest-payload":       "this is a REST API payload; send it with PUT",
	}
}}

func kindOf(word string) (kind, bool) {
	for _, k := range kinds() {
		if k.word == word {
			return k, true
		}
	}
	return kind{}, false
}
