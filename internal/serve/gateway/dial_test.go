package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berthml/berth/internal/serve"
)

// TestDialProof: nothing is sent to a program that has the port of a worker and does not know its
// secret.
func TestDialProof(t *testing.T) {
	for secret, want := range map[string]bool{"right": true, "wrong": false, "": false} {
		asked := 0
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if nonce := r.Header.Get(serve.NonceHeader); nonce != "" && secret != "" {
				mac := hmac.New(sha256.New, []byte(secret))
				mac.Write([]byte(nonce))
				w.Header().Set(serve.ProofHeader, hex.EncodeToString(mac.Sum(nil)))
			}
			if r.URL.Path == "/score" {
				asked++
			}
		}))
		defer other.Close()
		g := New(Options{Log: slog.New(slog.DiscardHandler), Secret: func(string) string { return "right" }})
		ctx := context.WithValue(t.Context(), slotKey{}, &slot{job: "j"})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, other.URL+"/score", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.client.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) != want || (asked == 1) != want {
			t.Errorf("with the secret %q: %v, and %d requests", secret, err, asked)
		}
		if err != nil && !untouched(err) {
			t.Errorf("it counts as begun: %v", err)
		}
	}
}
