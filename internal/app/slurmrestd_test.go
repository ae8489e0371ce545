package app_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth/internal/config"
)

// TestSlurmrestd attaches a Slurm site by slurmrestd: only where the operator has listed it, with a
// token that nobody sees again. One that has expired says so, and the job that waits goes on with
// the next.
func TestSlurmrestd(t *testing.T) {
	var submitted atomic.Bool
	rest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := map[string]string{
			"/openapi/v3": `{"paths":{"/slurm/v0.0.38/jobs":{}}}`, "/slurm/v0.0.38/ping": `{"pings":[{"hostname":"ctl","ping":"UP"}]}`,
			"/slurm/v0.0.38/partitions": `{"partitions":[]}`, "/slurm/v0.0.38/jobs": `{"jobs":[]}`,
			"/slurm/v0.0.38/nodes":      `{"nodes":[{"name":"n1","cpus":4,"real_memory":4000,"state":"idle","partitions":["main"]}]}`,
			"/slurm/v0.0.38/job/submit": `{"job_id":7}`,
		}[r.URL.Path]
		if r.Header.Get("X-SLURM-USER-NAME") != "me" || !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(r.URL.Path, "submit") {
			submitted.Store(true)
		}
		fmt.Fprint(w, answer)
	}))
	defer rest.Close()
	token := func(until time.Time) string {
		return "aGVhZA." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, until.Unix())) + ".c2lnbmVk"
	}
	site := func(token string) map[string]any {
		return map[string]any{"location": "local", "properties": map[string]any{"computeType": "Slurm", "properties": map[string]any{
			"restSettings": map[string]any{"address": rest.URL, "user": "me", "token": token},
		}}}
	}
	home := shortHome(t)
	cfg := config.Default(home)
	s := startAs(t, cfg)
	good, expired := token(time.Now().Add(time.Hour)), token(time.Now().Add(-time.Hour))
	if code, m := s.do("PUT", s.ws+"/computes/site", site(good)); code != http.StatusForbidden || !strings.Contains(fmt.Sprint(m), "allow: hosts:") {
		t.Errorf("an address that is not listed: %d %v", code, m)
	}
	s.stop()
	cfg.Allow.Hosts = []string{strings.TrimPrefix(rest.URL, "http://")}
	s = startAs(t, cfg)
	defer s.stop()
	until := func(says string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			_, m := s.do("GET", s.ws+"/computes/site", nil)
			if strings.Contains(fmt.Sprint(m), says) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it does not say %q: %v", says, m)
			}
		}
	}
	if code, m := s.do("PUT", s.ws+"/computes/site", site(expired)); code != http.StatusCreated && code != http.StatusOK {
		t.Fatalf("attach: %d %v", code, m)
	}
	until("the token of me for Slurm has expired")
	code, m := s.do("PUT", s.ws+"/jobs/waits", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": s.ws + "/computes/site"}})
	if code != http.StatusCreated {
		t.Fatalf("submit: %d %v", code, m)
	}
	other := site(good)
	other["properties"].(map[string]any)["properties"].(map[string]any)["restSettings"].(map[string]any)["user"] = "root"
	if code, m := s.do("PUT", s.ws+"/computes/site", other); code != http.StatusConflict {
		t.Errorf("another user: %d %v", code, m)
	}
	if code, m := s.do("PUT", s.ws+"/computes/site", site(good)); code != http.StatusCreated && code != http.StatusOK {
		t.Fatalf("attach again: %d %v", code, m)
	}
	until("connected:true")
	for deadline := time.Now().Add(time.Minute); !submitted.Load(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_, m := s.do("GET", s.ws+"/jobs/waits", nil)
			t.Fatalf("the job is not submitted: %v", m)
		}
	}
	_, m = s.do("GET", s.ws+"/computes", nil)
	if shown := mustJSON(t, m); strings.Contains(shown, good) || strings.Contains(shown, `"token"`) || !strings.Contains(shown, rest.URL) {
		t.Errorf("shown: %s", shown)
	}
	if strings.Contains(s.log.String(), good) || strings.Contains(s.log.String(), expired) {
		t.Error("the token is in the log")
	}
	for _, pattern := range []string{"berth.db*", "computes/*/*", "computes/*/*/*"} {
		files, _ := filepath.Glob(filepath.Join(home, pattern))
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && (bytes.Contains(b, []byte(good)) || bytes.Contains(b, []byte(expired))) {
				t.Errorf("a token is in %s", f)
			}
		}
	}
}
