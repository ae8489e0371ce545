package envs

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/docker"
)

// buildContext is the image of e's Docker build context, a folder of this node, built when it is
// not there.
func (c *Cache) buildContext(ctx context.Context, eng *engine, e berth.LaunchEnv, progress func(string)) (id string, cached bool, err error) {
	root, err := openContext(e)
	if err != nil {
		return "", false, err
	}
	defer root.Close()
	bc := buildFolder{root: root, dockerfile: dockerfileOf(e)}
	if _, err := root.Stat(bc.dockerfile); err != nil {
		return "", false, berth.Errorf(berth.Invalid, "the build context of environment %s has no %s: correct dockerfile_path", name(e), bc.dockerfile)
	}
	if bc.text, err = eng.readDockerfile(ctx, root, bc.dockerfile); err != nil {
		return "", false, berth.Errorf(berth.CodeOf(err), "the build context of environment %s: %w", name(e), err)
	}
	if bc.ignore, err = readIgnore(bc.root, bc.dockerfile); err != nil {
		return "", false, berth.Errorf(berth.Invalid, "the build context of environment %s: %w", name(e), err)
	}
	h := sha256.New()
	_, _ = io.WriteString(h, bc.dockerfile+"\n")
	if err := bc.writeTar(h); err != nil {
		return "", false, fmt.Errorf("reading the build context: %w", err)
	}
	hash := hex.EncodeToString(h.Sum(nil)[:20])
	ref := ownBuilt + ":" + hash
	id, cached, _, err = c.imageOnce(ctx, eng, ref, hash, progress, func() error {
		return c.buildImage(ctx, eng, bc, ref, hash, progress)
	})
	return id, cached, err
}

// openContext opens the folder of e's build context. Where the folder is limited, links do not lead
// out of the limit.
func openContext(e berth.LaunchEnv) (*os.Root, error) {
	path, ok, err := berth.FileURL(e.Build)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, berth.Errorf(berth.Internal, "the build context of environment %s is not on this node", name(e))
	}
	if e.Below == "" {
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, berth.Errorf(berth.Invalid, "the build context of environment %s: %w", name(e), err)
		}
		return root, nil
	}
	rel, err := filepath.Rel(e.Below, path)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, berth.Errorf(berth.Denied, "the build context of environment %s is not below %s", name(e), e.Below)
	}
	limit, err := os.OpenRoot(e.Below)
	if err != nil {
		return nil, err
	}
	defer limit.Close()
	root, err := limit.OpenRoot(rel)
	if err != nil {
		return nil, berth.Errorf(berth.Denied, "the build context of environment %s: %w", name(e), err)
	}
	return root, nil
}

// dockerfileOf is the path of the Dockerfile below its folder. az writes /Dockerfile where none is
// named, and engines take no path that begins at the root.
func dockerfileOf(e berth.LaunchEnv) string {
	return path.Clean(strings.TrimLeft(filepath.ToSlash(cmp.Or(e.Dockerfile, "Dockerfile")), "/"))
}

func (c *Cache) buildImage(ctx context.Context, eng *engine, bc buildFolder, ref, hash string, progress func(string)) error {
	logFile := c.path("logs", hash+".log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	progress("building the image of " + bc.dockerfile)
	r, w := io.Pipe()
	go func() { w.CloseWithError(bc.writeTar(w)) }()
	defer r.Close() // ends the writer too
	lines := newLineWriter(&builder{cache: c, log: log, progress: progress})
	failed := false
	err = eng.cli.Build(ctx, r, docker.Build{Tag: ref, Dockerfile: bc.dockerfile, Labels: map[string]string{Label: "build", Label + ".env": hash}}, func(m docker.Message) error {
		_, _ = io.WriteString(lines, m.Stream)
		if step := strings.TrimSpace(m.Stream); strings.HasPrefix(strings.ToLower(step), "step ") {
			first, _, _ := strings.Cut(step, "\n")
			progress(first)
		}
		if m.Error != "" {
			failed = true
			lines.flush()
			lines.line("error: " + m.Error)
			if strings.Contains(m.Error, "BuildKit") {
				lines.line("this node builds without BuildKit: take --mount and other BuildKit features out of the Dockerfile")
			}
		}
		return nil
	})
	lines.flush()
	if failed {
		last := lines.all[max(0, len(lines.all)-distilled):]
		return berth.Errorf(berth.Invalid, "building the image of %s:\n%s\n(the whole log is %s on the node)", bc.dockerfile, strings.Join(last, "\n"), logFile)
	}
	if err != nil {
		return engineError("building the image", err)
	}
	if made, err := eng.cli.Image(ctx, ref); err == nil {
		c.noteImage(eng, ref, hash, max(made.Size, 1))
	}
	return nil
}

// A buildFolder is a Docker build context.
type buildFolder struct {
	root       *os.Root
	dockerfile string // slash-separated, below root
	text       []byte // of the Dockerfile, which was checked
	ignore     ignoreList
}

// writeDockerfile writes the Dockerfile as it was when it was checked.
func (b buildFolder) writeDockerfile(t *tar.Writer) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: b.dockerfile, Size: int64(len(b.text)), Mode: 0o644}); err != nil {
		return err
	}
	_, err := t.Write(b.text)
	return err
}

// writeTar writes what the engine gets: the files in order, without owners and times, so that equal
// folders give equal bytes.
func (b buildFolder) writeTar(w io.Writer) error {
	t := tar.NewWriter(w)
	err := fs.WalkDir(b.root.FS(), ".", func(rel string, d fs.DirEntry, err error) error {
		if err != nil || rel == "." {
			return err
		}
		out, err := b.ignore.match(rel)
		if err != nil {
			return err
		}
		if out && rel != b.dockerfile && rel != ".dockerignore" {
			if d.IsDir() && !b.ignore.mayInclude() && !strings.HasPrefix(b.dockerfile, rel+"/") {
				return fs.SkipDir
			}
			if !d.IsDir() {
				return nil
			}
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = b.root.Readlink(rel); err != nil {
				return err
			}
		case !info.Mode().IsRegular() && !info.IsDir():
			return nil // sockets and devices have no place in an image
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name = rel
		if rel == b.dockerfile && b.text != nil {
			return b.writeDockerfile(t)
		}
		if info.IsDir() {
			h.Name += "/"
		}
		h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
		h.ModTime, h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}, time.Time{}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		f, err := b.root.Open(rel)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
	if err != nil {
		return err
	}
	return t.Close()
}
