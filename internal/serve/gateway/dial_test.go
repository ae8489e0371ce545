package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/serve"
)

// prover is a worker that knows a secret; what is not a question for it goes to h.
func prover(secret string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		nonce := r.Header.Get(serve.NonceHeader)
		if nonce == "" {
			h(w, r)
			return
		}
		if secret != "" {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write([]byte(nonce))
			w.Header().Set(serve.ProofHeader, hex.EncodeToString(mac.Sum(nil)))
		}
	}
}

// through returns a handler that passes requests to one worker.
func through(t *testing.T, address string, change func(*deployment)) http.Handler {
	t.Helper()
	g := New(Options{Log: slog.New(slog.DiscardHandler), Secret: func(string) string { return "right" }})
	d := &deployment{name: "blue", timeout: time.Minute, pool: newPool(g.o.Secret)}
	if change != nil {
		change(d)
	}
	d.pool.update([]berth.Replica{ready("j", strings.TrimPrefix(address, "http://"))})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{g: g, d: d, w: w, r: r, path: r.URL.EscapedPath(), id: "id", upgrade: protocol(r)}
		if err := x.buffer(); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := x.run(); err != nil {
			x.failed(err)
		}
	})
}

// TestDialProof: nothing is sent to a program that has the port of a worker and does not know its
// secret.
func TestDialProof(t *testing.T) {
	for secret, want := range map[string]int{"right": http.StatusOK, "wrong": http.StatusServiceUnavailable, "": http.StatusServiceUnavailable} {
		asked := 0
		other := httptest.NewServer(prover(secret, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/score" {
				asked++
			}
		}))
		defer other.Close()
		w := httptest.NewRecorder()
		through(t, other.URL, func(d *deployment) { d.queueWait = 50 * time.Millisecond }).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/score", strings.NewReader("{}")))
		if w.Code != want || (asked == 1) != (want == http.StatusOK) {
			t.Errorf("with the secret %q: %d, and %d requests", secret, w.Code, asked)
		}
	}
}
