package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
	"github.com/berthml/berth/internal/runner/cache"
	"github.com/berthml/berth/internal/runner/data"
)

// Code and inputs in the server's storage are brought to the node's cache, and put into the task's
// directory from there once it is known what the command runs in.

// tree is a folder, or a file, that is in the cache for the task.
type tree struct {
	what  string // for people
	use   *cache.Use
	to    string // its folder in the task's directory
	write bool   // the task may write to it
	asIs  bool   // the command reads the cached folder itself, and not a copy
	how   string // how it got there, for people
}

// bring brings what is at a URL to the cache, as src says. It returns nil where the server has no
// manifest of it: then it is fetched as it always was.
func (t *task) bring(ctx context.Context, c *data.Client, what, url string, src cache.Source, fits func(int64) error) (*tree, error) {
	src.Objects = t.l.Objects
	src.Fetch = func(ctx context.Context, tr *berth.Tree, want []int, to func(int) string) error {
		var bytes int64
		for _, i := range want {
			bytes += tr.Files[i].Size
		}
		if err := fits(bytes); err != nil {
			return err
		}
		return c.Contents(ctx, url, tr, want, to)
	}
	use, err := t.o.Cache.Get(ctx, src)
	switch berth.CodeOf(err) {
	case berth.Conflict, berth.Unsupported: // a file of it still grows, or the server is an older one
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return t.brought(what, use), nil
}

// brought takes a tree that is in the cache into the task.
func (t *task) brought(what string, use *cache.Use) *tree {
	for _, w := range use.Warnings {
		t.warn(what + ": " + w)
	}
	if skipped := use.Skipped; len(skipped) > 0 {
		t.warn(fmt.Sprintf("%s: names that cannot be files are left out: %q", what, skipped))
	}
	x := &tree{what: what, use: use}
	t.bringing.Lock()
	t.trees = append(t.trees, x)
	t.bringing.Unlock()
	return x
}

// bringCode brings the code; false where it has to be fetched.
func (t *task) bringCode(ctx context.Context, c *data.Client) (bool, error) {
	if t.o.Cache == nil || t.l.CodeVersion == "" {
		return false, nil
	}
	src := cache.Source{
		Name: t.l.CodeVersion, Programs: true,
		Manifest: func(ctx context.Context) ([]byte, error) { return c.Manifest(ctx, t.l.Code, false) },
	}
	x, err := t.bring(ctx, c, "code", t.l.Code, src, func(int64) error { return nil })
	if x == nil || err != nil {
		return false, err
	}
	x.to, x.write = t.workdir(), true
	return true, nil
}

// bringInput brings an input; false where it has to be fetched.
func (t *task) bringInput(ctx context.Context, c *data.Client, name string, in berth.LaunchInput) (bool, error) {
	if in.Outside != nil {
		return true, t.bringOutside(ctx, c, name, in)
	}
	if !in.Ours {
		return false, nil
	}
	if in.Stream {
		if there, err := t.streamOurs(ctx, c, name, in, streamAsked); there || err != nil {
			return there, err
		}
	}
	if t.o.Cache == nil {
		return false, nil
	}
	version, manifest := t.inputManifest(c, in)
	src := cache.Source{Name: version, Early: t.mayBeEarly(in), Manifest: manifest}
	x, err := t.bring(ctx, c, "input "+name, in.URL, src, func(bytes int64) error { return t.fits(in, bytes) })
	if errors.Is(err, errNoRoom) {
		return t.streamOurs(ctx, c, name, in, streamNoRoom)
	}
	if x == nil || err != nil {
		return false, err
	}
	if x.use.Single && !isFile(in.Type) && !isModel(in.Type) {
		return false, nil // a file where a folder is wanted: as before
	}
	x.to, x.write = filepath.Join(t.o.Dir, "inputs", name), berth.OwnsInput(in.Mode)
	return true, t.evaluateTree(ctx, x, name, in)
}

// inputManifest asks what an input consists of; version is its name in the cache, empty where it
// has none.
func (t *task) inputManifest(c *data.Client, in berth.LaunchInput) (version string, manifest func(context.Context) ([]byte, error)) {
	version, file := in.Version, isFile(in.Type)
	switch {
	case version == "":
	case file:
		version = "file " + version
	case berth.EvaluatesInput(in.Mode):
		version = "table " + version
	}
	return version, func(ctx context.Context) ([]byte, error) {
		if berth.EvaluatesInput(in.Mode) {
			return t.tableManifest(ctx, c, in)
		}
		return c.Manifest(ctx, in.URL, file)
	}
}

// place puts what was brought where the command finds it, and makes its environment private. env is
// nil for the machine as it is.
func (t *task) place(ctx context.Context, env *envs.Env) error {
	boxed := env != nil && env.Container != nil
	if len(t.streams) > 0 {
		if why := t.streamless(boxed); why != "" {
			if err := t.fetchStreams(ctx, why); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(t.trees, func(a, b *tree) int { return strings.Compare(a.what, b.what) })
	var mounted []*tree
	var err error
	why := mountless(boxed)
	for _, x := range t.trees {
		switch {
		case x.to == "": // was fetched after all
		case why == "" && x.mountable():
			mounted = append(mounted, x)
		case !x.write && boxed:
			x.how, x.asIs = "the node's cache itself, mounted read-only", true
			if err = os.MkdirAll(x.to, 0o700); err == nil {
				err = t.note(treesFile, x.use.Key)
			}
		case !x.write && t.o.Cache.Protects():
			err = x.link()
		default:
			err = x.copy(ctx, why)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", x.what, err)
		}
	}
	if err := t.linkKept(); err != nil {
		return fmt.Errorf("the directory of kept outputs: %w", err)
	}
	private := env != nil && env.Dir != ""
	if private && why != "" {
		return t.layer(env)
	}
	if len(mounted) == 0 && len(t.streams) == 0 && !private {
		return nil
	}
	more := t.mountStreams
	if private {
		more = func() error { return errors.Join(overlayEnv(env.Dir, t.o.Dir), t.mountStreams()) }
	}
	if t.room, err = mountAll(t.o.Dir, mounted, more); err == nil {
		for _, x := range mounted {
			x.asIs = true
		}
		return nil
	}
	t.o.Log.Info("folders are copied for tasks: they cannot be mounted", "err", err)
	brought := len(t.trees)
	if err := t.fetchStreams(ctx, err.Error()); err != nil {
		return err
	}
	for _, x := range append(mounted, t.trees[brought:]...) {
		if err := x.copy(ctx, err.Error()); err != nil {
			return fmt.Errorf("%s: %w", x.what, err)
		}
	}
	if private {
		return t.layer(env)
	}
	return nil
}

// treesFile, in the task's directory, has a line for each tree that its container has mounted: the
// engine inherits no descriptors.
const treesFile = "trees"

// note adds a line to a file in the task's directory.
func (t *task) note(file, line string) error {
	f, err := os.OpenFile(filepath.Join(t.o.Dir, file), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// holdTrees keeps the trees that a container of an earlier runner has mounted.
func (t *task) holdTrees() (release func()) {
	text, err := os.ReadFile(filepath.Join(t.o.Dir, treesFile))
	if err != nil || t.o.Cache == nil {
		return func() {}
	}
	var all []*cache.Use
	for key := range strings.FieldsSeq(string(text)) {
		if u := t.o.Cache.Hold(key); u != nil {
			all = append(all, u)
		}
	}
	return func() {
		for _, u := range all {
			u.Close()
		}
	}
}

// mountable says whether a tree can be mounted. What the command leaves in outputs and logs is read
// from outside of its mounts, so code that brings such folders along is copied.
func (x *tree) mountable() bool {
	if !x.write {
		return true
	}
	if filepath.Base(x.to) != "wd" {
		return false // a download is the task's own from the beginning
	}
	return !slices.ContainsFunc(x.use.Tree.Files, func(f berth.TreeFile) bool {
		top, _, _ := strings.Cut(f.Path, "/")
		return berth.IsKept(top)
	})
}

// copy makes a copy for the task alone.
func (x *tree) copy(ctx context.Context, why string) error {
	if err := os.MkdirAll(x.to, 0o700); err != nil {
		return err
	}
	how, err := x.use.Copy(ctx, x.to)
	x.how = "a private " + how + " of the node's cache"
	if how == "reflink" {
		x.how = "a private copy that shares its bytes with the node's cache (reflink)"
	}
	if why != "" && (!x.write || filepath.Base(x.to) == "wd") {
		x.how += ", since " + why
	}
	if err != nil || x.write {
		return err
	}
	return readOnly(x.to)
}

// link names the cached folder itself, which has no permission to write.
func (x *tree) link() error {
	if err := os.MkdirAll(filepath.Dir(x.to), 0o700); err != nil {
		return err
	}
	x.how, x.asIs = "the node's cache itself, write-protected by its permissions", true
	err := os.Symlink(x.use.Dir, x.to)
	if errors.Is(err, fs.ErrExist) {
		if err = os.Remove(x.to); err == nil {
			err = os.Symlink(x.use.Dir, x.to)
		}
	}
	return err
}

// staged says for people how code and inputs came there.
func (t *task) staged() string {
	var parts []string
	for _, x := range t.trees {
		if x.how == "" { // was fetched after all
			continue
		}
		n := x.use.Files
		files := "files"
		if n == 1 {
			files = "file"
		}
		from := "brought to the node"
		switch {
		case x.use.Early:
			from = "on the node already, checked while the command runs"
		case x.use.Cached:
			from = "on the node already"
		}
		parts = append(parts, fmt.Sprintf("%s: %d %s, %.1f MB, %s, %s", x.what, n, files, float64(x.use.Bytes)/1e6, from, x.how))
	}
	for _, x := range t.streams {
		parts = append(parts, x.describe())
	}
	return strings.Join(parts, "; ")
}

// holds are descriptors that keep the trees of the task in the cache, for its command to inherit.
func (t *task) holds() (fds []uintptr) {
	for _, x := range t.trees {
		if f := x.use.Hold(); f != nil {
			fds = append(fds, f.Fd())
		}
	}
	return fds
}

// closeTrees lets go of the trees. The command has its own hold on them.
func (t *task) closeTrees() {
	t.room.close()
	for _, x := range t.trees {
		x.use.Close()
	}
	for _, x := range t.streams {
		x.files.Close()
	}
}
