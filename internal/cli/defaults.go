package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
)

// settings is the file in which `az configure` and `az config` keep what they are told:
// HOME/azure/config, in the form of az's own, so that the real az pointed here by `berth azure-env`
// reads the same.
type settings struct {
	path  string
	lines []string
}

func settingsPath(home string) string { return filepath.Join(home, "azure", "config") }

// readSettings reads the file; none is empty settings.
func readSettings(home string) (*settings, error) {
	s := &settings{path: settingsPath(home)}
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, berth.Errorf(berth.Invalid, "the settings cannot be read: %w", err)
	}
	s.lines = strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return s, nil
}

// setting is one line of the file.
type setting struct{ section, key, value string }

// all is every setting, in the order of the file, and the line each is on.
func (s *settings) all() (out []setting, at []int) {
	section := ""
	for i, line := range s.lines {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]")
			continue
		}
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			out = append(out, setting{section, strings.TrimSpace(key), strings.TrimSpace(value)})
			at = append(at, i)
		}
	}
	return out, at
}

func (s *settings) get(section, key string) string {
	all, _ := s.all()
	for _, o := range all {
		if o.section == section && o.key == key {
			return o.value
		}
	}
	return ""
}

// set changes a setting; the value "" removes it.
func (s *settings) set(section, key, value string) {
	all, at := s.all()
	for i, o := range all {
		if o.section != section || o.key != key {
			continue
		}
		if value == "" {
			s.lines = append(s.lines[:at[i]:at[i]], s.lines[at[i]+1:]...)
		} else {
			s.lines[at[i]] = key + " = " + value
		}
		return
	}
	if value == "" {
		return
	}
	line := key + " = " + value
	for i, l := range s.lines {
		if strings.TrimSpace(l) == "["+section+"]" {
			s.lines = append(s.lines[:i+1:i+1], append([]string{line}, s.lines[i+1:]...)...)
			return
		}
	}
	s.lines = append(s.lines, "["+section+"]", line)
}

func (s *settings) write() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	temp := s.path + ".new"
	if err := os.WriteFile(temp, []byte(strings.Join(s.lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, s.path)
}

// defaults fills in the workspace where neither a flag nor BERTH_… names one: AZURE_DEFAULTS_… for
// those who come by az's name, then what `az configure --defaults` and `az account set` keep.
func (s *session) defaults(home string, ws *berth.Workspace) error {
	kept, err := readSettings(home)
	if err != nil {
		return err
	}
	for _, d := range []struct {
		to                   *string
		section, key, azures string
	}{
		{&ws.Group, "defaults", "group", "AZURE_DEFAULTS_GROUP"},
		{&ws.Name, "defaults", "workspace", "AZURE_DEFAULTS_WORKSPACE"},
		{&ws.Subscription, "berth", "subscription", ""},
	} {
		if *d.to == "" && s.format.az && d.azures != "" {
			*d.to = os.Getenv(d.azures)
		}
		if *d.to == "" && len(kept.lines) > 0 {
			*d.to = kept.get(d.section, d.key)
		}
	}
	return nil
}

// location is the place az would make things in, "" for the server's own.
func (s *session) location(home string) string {
	if l := os.Getenv("AZURE_DEFAULTS_LOCATION"); l != "" {
		return l
	}
	kept, err := readSettings(home)
	if err != nil {
		return ""
	}
	return kept.get("defaults", "location")
}
