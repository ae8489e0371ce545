package locate

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// Allow is what users who are not administrators may name of the server's machine: nothing, unless
// the server's file says so.
type Allow struct {
	Paths      []string // folders of which file: URLs may be used
	DockerArgs []string // options for containers: --cap-add=SYS_PTRACE, or --ulimit for any value
	// Hosts are hosts that are not Azure's to which the server sends requests for datastores.
	Hosts []string
}

// IsFile says whether a URI names a file of the machine.
func IsFile(uri string) bool {
	_, ok, _ := berth.FileURL(uri)
	return ok
}

// File says below which of the allowed folders a file: URL lies, or refuses it. Whether a link
// leads out of the folder is for whoever opens the file to see.
func (a Allow) File(uri string) (below string, err error) {
	path, ok, err := berth.FileURL(uri)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", berth.Errorf(berth.Invalid, "%q is not a file URL; write file:///PATH", uri)
	}
	path = filepath.Clean(path)
	for _, dir := range a.Paths {
		if rel, err := filepath.Rel(filepath.Clean(dir), path); err == nil && filepath.IsLocal(rel) {
			return filepath.Clean(dir), nil
		}
	}
	return "", berth.Errorf(berth.Denied, "%s is a file of the server, which only an administrator may use: "+
		"upload the data, or ask an administrator to list its folder under allow: paths: in berth.yaml", uri)
}

// free are the options that do nothing a job cannot do in other ways: shm_size,
// environment_variables.
var free = []string{"--shm-size", "--env", "-e"}

// Options refuses docker_args that are not allowed. raw is text or a list of texts.
func (a Allow) Options(raw json.RawMessage) error {
	list, err := DockerArgs(raw)
	if err != nil {
		return err
	}
	words := strings.Fields(strings.Join(list, " "))
	for i := 0; i < len(words); i++ {
		name, value, glued := strings.Cut(words[i], "=")
		if !glued && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
			i++
			value = words[i]
		}
		allowed := slices.ContainsFunc(a.DockerArgs, func(s string) bool {
			n, v, one := strings.Cut(strings.Join(strings.Fields(s), "="), "=")
			return n == name && (!one || v == value)
		})
		if !allowed && !slices.Contains(free, name) {
			return berth.Errorf(berth.Denied, "docker_args: %s is an option that only an administrator may give: "+
				"leave it out, or ask an administrator to list it under allow: docker_args: in berth.yaml", strings.TrimSuffix(name+"="+value, "="))
		}
	}
	return nil
}

// DockerArgs reads resources.dockerArgs: text, or a list of texts.
func DockerArgs(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, berth.Errorf(berth.Invalid, "resources.dockerArgs must be a string or a list of strings")
	}
	return strings.Fields(text), nil
}

// kept is what is kept beside a version of an asset.
type kept struct {
	// Admin says that an administrator registered it at a file: URL: others may read it.
	Admin bool `json:"admin,omitempty"`
	// Container and Name are where its files are, where that is not what its URI says.
	Container string `json:"container,omitempty"`
	Name      string `json:"name,omitempty"`
}

// VouchedMark is the mark of an asset whose file: URL an administrator registered.
func VouchedMark() json.RawMessage { return json.RawMessage(`{"admin":true}`) }

// FixedMark is the mark of an asset whose files are stored somewhere other than at its URI.
func FixedMark(container, name string) (json.RawMessage, error) {
	return json.Marshal(kept{Container: container, Name: name})
}

// Permit refuses a place that somebody who is not an administrator may not use, for reading or for
// writing. below is the folder that the runner must not be led out of; it is empty where there is
// no limit.
func (a Allow) Permit(p Place, write bool) (below string, err error) {
	if !IsFile(p.URL) {
		return "", nil
	}
	below, err = a.File(p.URL)
	if err != nil && p.Vouched && !write {
		return "", nil
	}
	return below, err
}

// Writes says whether an input in this mode may be written to where it lies.
func Writes(mode string) bool {
	return berth.WritesInput(mode)
}
