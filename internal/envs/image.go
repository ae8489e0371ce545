package envs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/docker"
)

// container prepares e's image, with e's package lists added where there are some.
func (c *Cache) container(ctx context.Context, eng *engine, e berth.LaunchEnv, progress, warn func(string)) (*Env, error) {
	var id string
	var cached bool
	var err error
	if e.Build != "" {
		id, cached, err = c.buildContext(ctx, eng, e, progress)
	} else {
		id, cached, err = eng.image(ctx, e.Image, progress)
	}
	if err != nil {
		return nil, err
	}
	hash := strings.TrimPrefix(id, "sha256:")
	if strings.TrimSpace(e.Conda) != "" || strings.TrimSpace(e.Pip) != "" {
		r, err := parse(e)
		if err != nil {
			return nil, err
		}
		for _, w := range r.Warnings {
			warn(w)
		}
		id, hash, cached, err = c.deriveImage(ctx, eng, id, r, e, progress, warn)
		if err != nil {
			return nil, err
		}
	}
	return &Env{Container: &Container{Image: id, Engine: eng.name, eng: eng}, Hash: hash, Cached: cached}, nil
}

// image is the id of a reference that a user gave, pulled when it is not there.
func (e *engine) image(ctx context.Context, ref string, progress func(string)) (id string, cached bool, err error) {
	if isOwnImage(ref) {
		return "", false, ownImageError(ref)
	}
	res, err := e.cli.Image(ctx, ref)
	if err == nil {
		if onlyOwn(res.Names) {
			return "", false, ownImageError(ref) // it was named by its id
		}
		return res.ID, true, nil
	}
	if docker.Status(err) != http.StatusNotFound {
		return "", false, engineError("looking for image "+ref, err)
	}
	if err := e.pull(ctx, ref, progress); err != nil {
		return "", false, err
	}
	res, err = e.cli.Image(ctx, ref)
	if err != nil {
		return "", false, engineError("looking for image "+ref, err)
	}
	return res.ID, false, nil
}

// pullSilence is how long a pull may say nothing before it is given up.
const pullSilence = 2 * time.Minute

func (e *engine) pull(ctx context.Context, ref string, progress func(string)) error {
	progress("pulling image " + ref)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := time.AfterFunc(pullSilence, func() { cancel(fmt.Errorf("the registry said nothing for %v", pullSilence)) })
	defer alarm.Stop()
	fail := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		code := berth.Invalid
		if unreachable([]string{err.Error()}) || ctx.Err() != nil {
			code = berth.Unavailable
		}
		b := berth.Errorf(code, "pulling image %s: %s; if it is a private registry, log in on the node (docker login), or load the image there", ref, short(err))
		b.Err = err
		return b
	}
	name, err := docker.ParseReference(ref)
	if err != nil {
		return fail(err)
	}
	layers := map[string][2]int64{} // done and total
	last := time.Now()
	err = e.cli.Pull(ctx, name, registryAuth(ctx, name.Host()), func(m docker.Message) error {
		alarm.Reset(pullSilence)
		if m.Status == "Downloading" && m.Progress.Total > 0 {
			layers[m.ID] = [2]int64{m.Progress.Current, m.Progress.Total}
		}
		if time.Since(last) > 2*time.Second && len(layers) > 0 {
			last = time.Now()
			var done, total int64
			for _, l := range layers {
				done, total = done+l[0], total+l[1]
			}
			progress(fmt.Sprintf("pulling image %s: %d of %d MB", ref, done>>20, total>>20))
		}
		return nil
	})
	if err != nil || ctx.Err() != nil {
		return fail(err)
	}
	return nil
}

// dockerConfig is what is read of the file that docker login writes.
type dockerConfig struct {
	Auths       map[string]struct{ Auth string } `json:"auths"`
	CredsStore  string                           `json:"credsStore"`
	CredHelpers map[string]string                `json:"credHelpers"`
}

// registryAuth is the user's login for the registry at host, or nil.
func registryAuth(ctx context.Context, host string) *docker.Auth {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, _ := os.UserHomeDir()
		dir = filepath.Join(home, ".docker")
	}
	var cfg dockerConfig
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil || json.Unmarshal(b, &cfg) != nil {
		return nil
	}
	a := docker.Auth{ServerAddress: host}
	helper := cfg.CredHelpers[host]
	if helper == "" {
		helper = cfg.CredsStore
	}
	if helper != "" {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "docker-credential-"+helper, "get")
		cmd.Stdin = strings.NewReader(host)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		var got struct{ Username, Secret string }
		if err == nil && json.Unmarshal(out, &got) == nil {
			a.Username, a.Password = got.Username, got.Secret
			if got.Username == "<token>" {
				a.Username, a.Password, a.IdentityToken = "", "", got.Secret
			}
		}
	}
	if a.Username == "" && a.IdentityToken == "" {
		for addr, entry := range cfg.Auths {
			plain, err := base64.StdEncoding.DecodeString(entry.Auth)
			if err != nil || registryHost(addr) != host {
				continue
			}
			a.Username, a.Password, _ = strings.Cut(string(plain), ":")
		}
	}
	if a.Username == "" && a.IdentityToken == "" {
		return nil
	}
	return &a
}

// registryHost is the host of an address in the file of docker login.
func registryHost(addr string) string {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr = rest
	}
	host, _, _ := strings.Cut(addr, "/")
	return strings.TrimPrefix(host, "index.")
}
