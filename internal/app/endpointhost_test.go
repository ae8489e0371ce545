package app_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/app"
	"github.com/berthml/berth/internal/config"
)

// TestEndpointHost: where a zone is set, an endpoint answers at a host name of its own, for which
// the server has a certificate: every path of it is the endpoint's, and every protocol passes.
func TestEndpointHost(t *testing.T) {
	cfg := config.Default(shortHome(t))
	cfg.EndpointZone = "score.example.org:8443"
	e := startEndpoint(t, startAs(t, cfg))
	if e.uri != "https://e.score.example.org:8443/score" {
		t.Fatalf("the endpoint is at %s", e.uri)
	}
	pem, err := os.ReadFile(filepath.Join(e.home, "tls", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	e.remote = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { // as DNS would have it
			return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(e.app.URL, "https://"))
		},
	}}
	e.passesOn()
	for _, path := range []string{"", "healthz", "berth/endpoints/x/y/z/e/score", "subscriptions?api-version=1", "st.blob.core.windows.net/a//b", "a%2Fb//c"} {
		if code, body := e.get(path); code != http.StatusOK || body != "/"+path+" 1" {
			t.Errorf("GET /%s: %d %s", path, code, body)
		}
	}
	key := e.key
	e.key = ""
	if code, body := e.get("score"); code != http.StatusUnauthorized {
		t.Errorf("without a key: %d %s", code, body)
	}
	e.key = key
	here := e.uri

	// An endpoint of another workspace has the same name and another host.
	ws := strings.TrimSuffix(e.ws, "/default") + "/second"
	if code, m := e.do("PUT", ws, map[string]any{"location": "local"}); code/100 != 2 {
		t.Fatal(code, m)
	}
	_, m := e.do("PUT", ws+"/onlineEndpoints/e", map[string]any{"location": "local", "properties": map[string]any{"authMode": "Key"}})
	e.uri, _ = m["properties"].(map[string]any)["scoringUri"].(string)
	if e.uri == here {
		t.Fatalf("both endpoints are at %s", here)
	}
	if code, body := e.get("score"); code != http.StatusUnauthorized {
		t.Errorf("with the key of the other: %d %s", code, body)
	}
	_, m = e.do("POST", ws+"/onlineEndpoints/e/listKeys", map[string]any{})
	e.key, _ = m["primaryKey"].(string)
	if code, body := e.get("score"); code != http.StatusNotFound || !strings.Contains(body, "no deployment with traffic") {
		t.Errorf("at %s: %d %s", e.uri, code, body)
	}
	e.uri = strings.Replace(e.uri, "https://e--", "https://e--0", 1)
	if code, body := e.get("score"); code != http.StatusUnauthorized {
		t.Errorf("at %s: %d %s", e.uri, code, body)
	}
	// The address below the server's own stays.
	e.uri, e.key = e.app.URL+"/berth/endpoints"+strings.NewReplacer("/subscriptions/", "/", "/resourceGroups/", "/", "/providers/Microsoft.MachineLearningServices/workspaces/", "/").Replace(e.ws)+"/e/score", key
	if code, body := e.get("v2"); code != http.StatusOK || body != "/v2 1" {
		t.Errorf("at %s: %d %s", e.uri, code, body)
	}
	e.end()
}

// TestEndpointHostOfServer: a zone that the server's own name is in is refused.
func TestEndpointHostOfServer(t *testing.T) {
	for advertise, blobs := range map[string]string{"https://ml.example.org": "", "https://berth.test:8443": "org:1"} {
		cfg := config.Default(shortHome(t))
		cfg.Advertise, cfg.BlobZone, cfg.EndpointZone = advertise, blobs, "example.org"
		if blobs != "" {
			cfg.EndpointZone = "blob.org"
		}
		a, err := app.Open(t.Context(), cfg, nil, slog.New(slog.DiscardHandler))
		if err == nil {
			a.Close()
		}
		if berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), "endpoint_zone: ") {
			t.Errorf("%s, blobs in %q: %v", advertise, blobs, err)
		}
	}
}

// get asks for a path below the endpoint.
func (e *endpointServer) get(path string) (int, string) {
	e.t.Helper()
	resp := e.request("GET", path, nil)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
