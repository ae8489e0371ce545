package envs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// pipSettings are the settings of pip that uv does not read by itself, and the variables that tell
// it.
var pipSettings = []struct{ pip, uv string }{
	{"index-url", "UV_INDEX_URL"},
	{"extra-index-url", "UV_EXTRA_INDEX_URL"},
	{"find-links", "UV_FIND_LINKS"},
	{"no-index", "UV_NO_INDEX"},
	{"trusted-host", "UV_INSECURE_HOST"},
	{"cert", "SSL_CERT_FILE"},
	{"timeout", "UV_HTTP_TIMEOUT"},
	{"default-timeout", "UV_HTTP_TIMEOUT"},
}

// indexEnv is what uv has to be told of the user's pip settings. Where uv has settings of its own
// about indexes, they count.
func indexEnv(r *request) []string {
	conf := pipConf()
	own := uvHasIndex()
	var out []string
	for _, s := range pipSettings {
		v := conf[s.pip]
		about := strings.HasSuffix(s.pip, "index-url") || s.pip == "find-links" || s.pip == "no-index"
		if v == "" || os.Getenv(s.uv) != "" || about && own {
			continue
		}
		if s.pip == "index-url" && r.has("--index-url") {
			continue // the file's own one counts, as it does for pip
		}
		if s.pip == "find-links" {
			v = strings.Join(strings.Fields(v), ",")
		}
		out = append(out, s.uv+"="+strings.Join(strings.Fields(v), " "))
		if s.pip == "extra-index-url" && os.Getenv("UV_INDEX_STRATEGY") == "" {
			out = append(out, "UV_INDEX_STRATEGY=unsafe-best-match") // as pip does
		}
	}
	return out
}

// has reports whether the request's own files set an option.
func (r *request) has(name string) bool {
	for _, o := range r.Options {
		if o.Name == name {
			return true
		}
	}
	return false
}

// uvHasIndex reports whether uv was set up with indexes of its own.
func uvHasIndex() bool {
	for _, v := range []string{"UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL"} {
		if os.Getenv(v) != "" {
			return true
		}
	}
	files := []string{os.Getenv("UV_CONFIG_FILE"), "/etc/uv/uv.toml"}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "uv", "uv.toml"))
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "index") {
			return true
		}
	}
	return false
}

// pipConf reads pip's settings from its files and variables, the way pip orders them.
func pipConf() map[string]string {
	out := map[string]string{}
	home, _ := os.UserHomeDir()
	files := []string{"/etc/xdg/pip/pip.conf", "/etc/pip.conf", filepath.Join(home, ".pip", "pip.conf")}
	if runtime.GOOS == "darwin" {
		files = append(files, "/Library/Application Support/pip/pip.conf")
	}
	if dir, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(dir, "pip", "pip.conf"))
	}
	files = append(files, filepath.Join(home, ".config", "pip", "pip.conf"))
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		files = append(files, filepath.Join(v, "pip.conf"))
	}
	if v := os.Getenv("PIP_CONFIG_FILE"); v == os.DevNull {
		files = nil
	} else if v != "" {
		files = append(files, v)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			readIni(string(b), out)
		}
	}
	for _, s := range pipSettings {
		if v := os.Getenv("PIP_" + strings.ToUpper(strings.ReplaceAll(s.pip, "-", "_"))); v != "" {
			out[s.pip] = v
		}
	}
	return out
}

// readIni adds the settings of pip's [global] and [install] sections; those of [install] win.
func readIni(text string, out map[string]string) {
	sections := map[string]map[string]string{"global": {}, "install": {}}
	var section map[string]string
	key := ""
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		t := strings.TrimSpace(line)
		switch {
		case t == "" || t[0] == '#' || t[0] == ';':
		case t[0] == '[':
			section, key = sections[strings.ToLower(strings.Trim(t, "[]"))], ""
		case section == nil:
		case line[0] == ' ' || line[0] == '\t':
			if key != "" {
				section[key] += " " + t
			}
		default:
			k, v, ok := strings.Cut(t, "=")
			if !ok {
				k, v, _ = strings.Cut(t, ":")
			}
			key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(k)), "_", "-")
			section[key] = strings.TrimSpace(v)
		}
	}
	for _, s := range []string{"global", "install"} {
		for k, v := range sections[s] {
			out[k] = v
		}
	}
}
