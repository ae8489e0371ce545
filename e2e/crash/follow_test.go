package crash_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFollowersLeaveRoom: with more followers than a server may have open files, those that are too
// many are asked to come again, and everybody else is answered.
func TestFollowersLeaveRoom(t *testing.T) {
	w := makeChaos(t, "")
	w.files = 256
	w.serve()
	gate := filepath.Join(w.marks, "gate")
	w.put("long", fmt.Sprintf("echo begun; while [ ! -e %s ]; do sleep 0.05; done", gate), "local")
	counts := map[int]int{}
	for i := range 300 {
		path := "/jobs/long/logs?follow=true"
		if i%3 == 0 {
			path = "/events"
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://berth"+w.ws+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		res, err := w.http.Do(req)
		if err != nil {
			t.Fatalf("follower %d: %v", i, err)
		}
		if counts[res.StatusCode]++; res.StatusCode == http.StatusOK {
			defer res.Body.Close()
			continue
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || err != nil {
			t.Fatalf("follower %d: %d %s, %v", i, res.StatusCode, b, err)
		}
	}
	for _, path := range []string{"/jobs", "/jobs/long", "/computes"} {
		if code, b, err := w.do("GET", w.ws+path, nil); err != nil || code != http.StatusOK {
			t.Errorf("%s: %d %s, %v", path, code, b, err)
		}
	}
	if counts[http.StatusOK] < 20 || counts[http.StatusServiceUnavailable] == 0 {
		t.Errorf("answers to followers: %v", counts)
	}
	w.put("other", "true", "local")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other", "long"} {
		w.until("end of "+name, time.Minute, func() (bool, error) {
			o, err := w.outcome(name)
			return err == nil && o.Status == "Completed", err
		})
	}
}
