package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/config"
)

func TestLoad(t *testing.T) {
	home := t.TempDir()
	if c, err := config.Load(home); err != nil || c.DatabaseURL() != "sqlite:"+filepath.Join(home, "berth.db") || c.Check() != nil {
		t.Errorf("%+v, %v", c, err)
	}
	write := func(text string) (config.Config, error) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, config.FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Load(home)
	}
	c, err := write("listen: 0.0.0.0:8443\nslots: 3\nadvertise: https://ml.example.org\ndatabase: postgres://x/y\n")
	if err != nil || c.Slots != 3 || c.DatabaseURL() != "postgres://x/y" || c.Workspace != "default" {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"slotz: 3\n":                     "berth.yaml: line 1: unknown key slotz; did you mean slots?",
		"allow: {path: [/x]}\n":          "unknown key path; did you mean paths?",
		"nothing_like_it: 3\n":           "unknown key nothing_like_it",
		"slots: many\n":                  "line 1: `many` must be a whole number",
		"listen: [\n":                    "line 2, column 1: it is not valid YAML: ",
		"slots: 0\n":                     "slots",
		"blobs: /mnt\n":                  "blobs: \"/mnt\" is not s3://BUCKET/PREFIX",
		"blobs_region: x\n":              "set blobs to s3://BUCKET/PREFIX",
		"blobs_cache_bytes: 1\n":         "blobs_cache_bytes",
		"listen: nowhere\n":              "listen",
		"acme: true\n":                   "set advertise",
		"acme_email: a@b.c\n":            "acme: true",
		"tls_key: x\n":                   "belong together",
		"local_price_per_hour: -1\n":     "local_price_per_hour",
		"local_jobs_per_user: -1\n":      "local_jobs_per_user",
		"local_currency: dollars\n":      "local_currency",
		"advertise: http://x\n":          "advertise",
		"kubernetes: in-cluster\n":       "kubernetes",
		"ssh_agent: agent.sock\n":        "ssh_agent",
		"advertise: https://x/path\n":    "advertise",
		"endpoint_zone: 10.0.0.1\n":      "endpoint_zone",
		"endpoint_zone: https://x.org\n": "endpoint_zone",
		"workspace: ../x\n":              "workspace",
		"- a list\n":                     "",
	} {
		_, err := write(text)
		if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
