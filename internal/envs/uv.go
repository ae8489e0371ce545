package envs

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// uvVersion is the version of uv that is fetched where there is none.
const uvVersion = "0.13.7"

// uv is the path of the uv program: the one of Options, the one on PATH, or the one in the cache,
// fetched when it is not there yet.
func (c *Cache) uv(ctx context.Context, progress func(string)) (string, error) {
	c.uvMu.Lock()
	defer c.uvMu.Unlock()
	if c.uvPath != "" {
		return c.uvPath, nil
	}
	if c.o.UV != "" {
		p, err := exec.LookPath(c.o.UV)
		if err != nil {
			return "", berth.Errorf(berth.Unsupported, "there is no uv program at %s: correct the setting, or leave it empty", c.o.UV)
		}
		c.uvPath = p
		return p, nil
	}
	if p, err := exec.LookPath("uv"); err == nil {
		c.uvPath = p
		return p, nil
	}
	own := c.path("uv", uvVersion, "uv")
	if _, err := os.Stat(own); err != nil {
		if err := c.fetchUV(ctx, own, "", progress); err != nil {
			return "", err
		}
	}
	c.uvPath = own
	return own, nil
}

// staticUV is a uv that runs in any image: the build for musl needs no libraries. Where it cannot
// be had, uv itself may do.
func (c *Cache) staticUV(ctx context.Context, progress func(string)) (string, error) {
	own := c.path("uv", uvVersion, "uv-static")
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if err := c.fetchUV(ctx, own, "musllinux_1_1_"+arch, progress); err != nil {
		c.log.Debug("static uv not fetched", "err", err)
		return c.uv(ctx, progress)
	}
	return own, nil
}

// fetchUV takes uv out of its wheel, which any Python with pip can download from the index that pip
// is set up for.
func (c *Cache) fetchUV(ctx context.Context, target, platform string, progress func(string)) error {
	lock, err := c.lockWait(ctx, "uv", func() {})
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	progress("fetching uv " + uvVersion + ", which builds environments (once per node)")
	tmp, err := os.MkdirTemp(c.path("tmp"), "uv-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var tried []string
	for _, python := range c.pipPythons() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		args := []string{
			"-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
			"--no-deps", "--only-binary", ":all:", "--dest", tmp, "uv==" + uvVersion,
		}
		if platform != "" {
			args = append(args, "--platform", platform)
		}
		cmd := exec.CommandContext(ctx, python, args...)
		cmd.Dir = c.dir
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			tried = append(tried, fmt.Sprintf("%s: %s", python, mask(tail(string(out)+"\n"+err.Error(), 3))))
			continue
		}
		wheels, _ := filepath.Glob(filepath.Join(tmp, "uv-*.whl"))
		if len(wheels) != 1 {
			tried = append(tried, python+": no wheel came")
			continue
		}
		return extractUV(wheels[0], target)
	}
	msg := "there is no Python with pip to fetch it"
	if len(tried) > 0 {
		msg = "fetching it did not succeed:\n" + strings.Join(tried, "\n")
	}
	return berth.Errorf(berth.Unsupported, "environments need the program uv, which is not on this node's PATH, and %s\ninstall uv %s on the node", msg, uvVersion)
}

// pipPythons are the interpreters that may have pip.
func (c *Cache) pipPythons() []string {
	var out []string
	for _, n := range []string{"python3", "python"} {
		if p, err := exec.LookPath(n); err == nil {
			out = append(out, p)
		}
	}
	for _, in := range c.interpreters() {
		if in.v.compare(pyVersion{3, 8, -1}) >= 0 && len(out) < 5 {
			out = append(out, in.path)
		}
	}
	return out
}

// extractUV writes the program in a wheel to target, whole or not at all.
func extractUV(wheel, target string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("opening the wheel of uv: %w", err)
	}
	defer z.Close()
	i := slices.IndexFunc(z.File, func(f *zip.File) bool {
		return path.Base(f.Name) == "uv" && path.Base(path.Dir(f.Name)) == "scripts"
	})
	if i < 0 {
		return errors.New("the wheel of uv holds no program")
	}
	in, err := z.File[i].Open()
	if err != nil {
		return fmt.Errorf("reading the wheel of uv: %w", err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), ".uv-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = io.Copy(tmp, in)
	err = errors.Join(err, tmp.Chmod(0o755), tmp.Sync(), tmp.Close())
	if err != nil {
		return fmt.Errorf("writing uv: %w", err)
	}
	return os.Rename(tmp.Name(), target)
}

// uvEnv is the environment for uv: this process's, without what would point it elsewhere.
func (c *Cache) uvEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		k, _, _ := strings.Cut(kv, "=")
		switch k {
		case "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONHOME", "PYTHONPATH", "UV_PYTHON", "UV_SYSTEM_PYTHON",
			"UV_TARGET", "UV_PROJECT", "UV_OFFLINE_ENV", "UV_PYTHON_INSTALL_DIR":
			return true
		}
		return false
	})
	env = append(env, "UV_PYTHON_INSTALL_DIR="+c.path("python"), "UV_PYTHON_PREFERENCE=system", "UV_NO_PROGRESS=1", "NO_COLOR=1")
	if os.Getenv("UV_COMPILE_BYTECODE_TIMEOUT") == "" {
		// Seconds for a file. Its 60 are not enough where many environments are built at once.
		env = append(env, "UV_COMPILE_BYTECODE_TIMEOUT=3600")
	}
	if os.Getenv("UV_CACHE_DIR") == "" {
		// Beside the environments, so that files are shared by hard links.
		env = append(env, "UV_CACHE_DIR="+c.path("uv-cache"))
	}
	return env
}
