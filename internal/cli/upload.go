package cli

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/term"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// A folder beyond these is almost always the wrong one: a home directory, a data set beside the
// code.
const (
	manyFiles = 100_000
	manyBytes = 10 << 30
)

// A folder beyond these may be meant, and takes a while.
const (
	severalFiles = 20_000
	severalBytes = 200 << 20
)

// labelBytes is how much data is not hashed before it is sent to a server on this machine.
const labelBytes = 1 << 30

// neverCode is what `berth run` leaves behind whether an ignore file names it or not.
var neverCode = []string{
	".git/", "__pycache__/", ".venv/", "node_modules/", ".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/",
}

// followLinks says whether links may lead out of the folders that are uploaded.
func followLinks() bool {
	yes, err := strconv.ParseBool(os.Getenv("BERTH_FOLLOW_LINKS"))
	return yes && err == nil
}

// uploadCode makes a code asset of a folder and returns its id, "" when there is nothing in it.
func (r *bareRun) uploadCode(ctx context.Context, c *client.Client, dir string) (string, error) {
	s := r.s
	u := spec.Upload{Path: dir, Kind: "code", Ignore: neverCode, Links: followLinks()}
	if rel, err := filepath.Rel(dir, s.cfg.Home); err == nil && filepath.IsLocal(rel) && s.cfg.Home != "" {
		if rel == "." {
			return "", berth.Errorf(berth.Invalid, "%s is the home of the local server; change to the folder of your code, or use --no-code", dir)
		}
		u.Ignore = append(u.Ignore[:len(u.Ignore):len(u.Ignore)], "/"+filepath.ToSlash(rel)+"/")
	}
	u.Ignore = append(u.Ignore[:len(u.Ignore):len(u.Ignore)], virtualEnvs(dir)...)
	return s.codeAsset(ctx, c, u, r.yes, func(f *spec.Folder) error {
		if !r.secrets {
			s.leaveSecrets(f, "--secrets uploads")
		}
		if n := len(f.Files); !r.yes && (n > severalFiles || f.Bytes() > severalBytes) {
			return s.confirmLarge(dir, n, f.Bytes())
		}
		return nil
	})
}

// confirmLarge asks a person about a large folder, and tells others.
func (s *session) confirmLarge(dir string, files int, bytes int64) error {
	what := fmt.Sprintf("%d %s, %s", files, plural(files, "file"), size(bytes))
	if !s.err.tty || !term.IsTerminal(int(os.Stdin.Fd())) {
		s.say("uploading %s: %s; name what should stay here in .amlignore", dir, what)
		return nil
	}
	return s.confirm(dir + " holds " + what + ": upload all of it?")
}

// leaveSecrets takes out of a folder what looks like a secret and was not asked for. It says so,
// and what uploads it.
func (s *session) leaveSecrets(f *spec.Folder, what string) {
	secret := secrets()
	var left []string
	f.Files = slices.DeleteFunc(f.Files, func(file spec.File) bool {
		if file.Asked || !secret(file.Name) {
			return false
		}
		left = append(left, file.Name)
		return true
	})
	switch names := aFew(left); {
	case len(left) > 1:
		s.say("not uploaded, because they look like secrets: %s; %s them", names, what)
	case len(left) == 1:
		s.say("not uploaded, because it looks like a secret: %s; %s it", names, what)
	}
}

// saySecrets says that data which looks like a secret is uploaded: all of it was asked for.
func (s *session) saySecrets(f *spec.Folder) {
	secret := secrets()
	var sent []string
	for _, file := range f.Files {
		if !file.Asked && secret(file.Name) {
			sent = append(sent, file.Name)
		}
	}
	if len(sent) > 0 {
		s.warn("uploaded with the data, where everybody who may read the workspace can read it: %s; if that is a secret, name it in .amlignore and upload the data anew", aFew(sent))
	}
}

// secrets tells which files look like secrets. Files of a folder are asked about together.
func secrets() func(name string) bool {
	var dir string
	inside := false
	return func(name string) bool {
		in, base := path.Split(name)
		if in != dir {
			dir, inside = in, holdsSecrets(in)
		}
		return inside || looksSecret(base)
	}
}

// aFew is a list of names, of which a few are enough.
func aFew(names []string) string {
	slices.Sort(names)
	if n := len(names); n > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), n-5)
	}
	return strings.Join(names, ", ")
}

// holdsSecrets says whether a folder is by its name one of keys or passwords.
func holdsSecrets(dir string) bool {
	return slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool {
		return slices.Contains([]string{".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker"}, part)
	})
}

// looksSecret says whether a file is by its name one that holds keys or passwords.
func looksSecret(base string) bool {
	switch path.Ext(base) {
	case ".pem", ".key", ".p12", ".pfx", ".token":
		return true
	case ".pub":
		return false
	}
	if env, ok := strings.CutPrefix(base, ".env."); ok {
		return !slices.Contains([]string{"example", "sample", "template", "dist"}, env)
	}
	return slices.Contains([]string{
		".env", ".netrc", ".pypirc", ".pgpass", ".git-credentials", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json",
	}, base)
}

// virtualEnvs are patterns for the Python environments in a folder, whatever they are called: they
// are bound to their place, and links lead out of them.
func virtualEnvs(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the snapshot says so
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "pyvenv.cfg")); err == nil {
			out = append(out, "/"+e.Name()+"/")
		}
	}
	return out
}

// codeAsset makes a code asset of an upload and returns its id.
// Files that check does not want are not uploaded.
func (s *session) codeAsset(ctx context.Context, c *client.Client, u spec.Upload, yes bool, check func(*spec.Folder) error) (string, error) {
	u.Index = snapshotIndex()
	folder, err := u.List()
	if !yes && (berth.CodeOf(err) == berth.Limit || err == nil && (len(folder.Files) > manyFiles || folder.Bytes() > manyBytes)) {
		err = tooLarge(u)
	}
	if err == nil && check != nil {
		err = check(folder)
	}
	if err == nil {
		err = u.Sum(folder)
	}
	if err != nil {
		return "", err
	}
	s.sayIgnored(folder)
	if len(folder.Files) == 0 {
		return "", nil
	}
	var id string
	return id, s.transfer(c, u, folder, func(up *client.Upload) (err error) {
		id, _, err = c.Code(ctx, up, folder.HashVersion)
		return err
	})
}

// uploadData puts a file or folder into a datastore and returns its URI.
func (s *session) uploadData(ctx context.Context, c *client.Client, u spec.Upload) (string, error) {
	u.Index = snapshotIndex()
	folder, err := u.List()
	if err != nil {
		return "", err
	}
	s.sayIgnored(folder)
	if u.Kind != "context" {
		s.saySecrets(folder)
	}
	// Reading so much to find out that it was sent before takes longer than to send it to a server
	// on this machine, which keeps the same content once.
	if c.Local() && folder.Bytes() >= labelBytes && u.Index != "" {
		err = u.Label(folder)
	} else {
		err = u.Sum(folder)
	}
	if err != nil {
		return "", err
	}
	store := u.Datastore
	if store == "" {
		store = "workspaceblobstore"
	}
	var uri string
	err = s.transfer(c, u, folder, func(up *client.Upload) (err error) {
		uri, err = c.Data(ctx, store, up)
		return err
	})
	if err != nil || u.Kind != "context" {
		return uri, err
	}
	// A build context is named by an https address.
	address, err := c.BlobURL(ctx, uri)
	return address + "/", err
}

// changes is how often a folder is looked at anew because a file of it changed meanwhile.
const changes = 3

// transfer sends a snapshot, and again what changed while it was sent.
func (s *session) transfer(c *client.Client, u spec.Upload, folder *spec.Folder, send func(*client.Upload) error) error {
	for n, what := range folder.Skipped {
		if n == 3 {
			s.say("%s: %d more that are neither files nor folders are left out", u.Path, len(folder.Skipped)-n)
			break
		}
		s.say("%s: %s, and is left out", u.Path, what)
	}
	for n := 0; ; n++ {
		up := s.asUpload(c, u, folder)
		stop := s.sending(up)
		err := send(up)
		stop()
		if !client.IsChanged(err) || n == changes {
			return err
		}
		if err := u.Again(folder); err != nil {
			return err
		}
	}
}

// asUpload is a snapshot as the client takes it.
func (s *session) asUpload(c *client.Client, u spec.Upload, folder *spec.Folder) *client.Upload {
	up := &client.Upload{Folder: filepath.Base(u.Path), Hash: folder.Hash, Files: make([]client.File, len(folder.Files))}
	if up.Folder == string(filepath.Separator) || up.Folder == "." || u.Path == "" {
		up.Folder = "code"
	}
	for i, f := range folder.Files {
		up.Files[i] = client.File{Name: f.Name, Path: f.Path, Size: f.Size}
	}
	if st, err := os.Stat(u.Path); err == nil && !st.IsDir() && len(up.Files) == 1 && u.Kind != "code" {
		up.Single = true
	}
	ws := fmt.Sprint(c.Workspace)
	up.Before = u.Places(ws)
	up.Begun = func(address string) { u.Sent(ws, address) }
	up.Hashes = func(files []client.File) {
		u.Hashes(folder)
		for i, f := range folder.Files {
			files[i].Hash = f.Hash
		}
	}
	return up
}

// sending shows the progress of an upload; call the result when it is over.
func (s *session) sending(up *client.Upload) func() {
	if !s.err.tty || s.quiet {
		return func() {}
	}
	line := s.newProgress()
	var last atomic.Int64
	up.Progress = func(sent, total int64) {
		if sent < last.Load() {
			return // an older word from another goroutine
		}
		last.Store(sent)
		line.set("uploading %s: %s of %s, %d %s", up.Folder, size(sent), size(total), len(up.Files), plural(len(up.Files), "file"))
	}
	return line.stop
}

// tooLarge refuses a folder that is probably not the one that was meant, before every byte of it is
// read.
func tooLarge(u spec.Upload) error {
	return berth.Errorf(berth.Limit, "%s holds more than %d files or %s; is it the folder you mean?\n"+
		"name what should stay here in .amlignore, give the folder with --code DIR, leave it out with --no-code, or insist with --yes",
		u.Path, manyFiles, size(manyBytes))
}

// snapshotIndex is the user's own folder of what is known of folders, "" when there is none.
func snapshotIndex() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "berth", "snapshots")
}
