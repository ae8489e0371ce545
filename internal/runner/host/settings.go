package host

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Settings is what a host is told besides its directory. It is kept in DIR/settings.json, so that a
// worker that starts again knows it too.
type Settings struct {
	// Slots is how many tasks run at once; 0 is no limit. What comes above it waits in line.
	Slots int `json:"slots,omitempty"`
	// Environments is the directory of built environments; empty is DIR/envs.
	Environments string `json:"environments,omitempty"`
	// EnvironmentBytes is how much of them is kept; 0 is the default of package envs.
	EnvironmentBytes int64 `json:"environmentBytes,omitempty"`
	// Cache is the directory of what tasks read; empty is DIR/cache. CacheBytes is how much of it
	// is kept; 0 is the default.
	Cache      string `json:"cache,omitempty"`
	CacheBytes int64  `json:"cacheBytes,omitempty"`
	// Engine is the container engine: a Docker API address, empty to look for one, "none" for no
	// containers.
	Engine string `json:"engine,omitempty"`
	// Home is the server's, whose secrets tasks are kept from where that is possible; empty where
	// there are none.
	Home string `json:"home,omitempty"`
	// KeepAlive says that the host stays although nobody needs it, as long as its directory is
	// there.
	KeepAlive bool `json:"keepAlive,omitempty"`
}

func settingsPath(dir string) string { return filepath.Join(dir, "settings.json") }

// Save keeps the settings of the host of dir. They hold for what it opens afterwards.
func (s Settings) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp := settingsPath(dir) + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, settingsPath(dir))
}

func loadSettings(dir string) (Settings, error) {
	var s Settings
	b, err := os.ReadFile(settingsPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}
