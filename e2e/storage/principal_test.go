//go:build engines

package storage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
	"github.com/berthml/berth/internal/storage"
)

// startAzureTokens is an emulator of Azure's Blob service that takes tokens, which it does over
// https only.
func startAzureTokens(t *testing.T) *proxy {
	t.Helper()
	tool, address, dir := filepath.Join(world.Package(t, azurite), "node_modules", ".bin", "azurite-blob"), world.FreeAddress(t), t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(address, ":")
	world.Serve(t, address, func() *exec.Cmd {
		return program(tool, nil, "--silent", "--location", dir, "--blobHost", host, "--blobPort", port, "--disableTelemetry", "--skipApiVersionCheck",
			"--oauth", "basic", "--cert", certFile, "--key", keyFile)
	})
	return startProxyOver(t, "https://"+address, &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}) //nolint:gosec // the emulator's own certificate
}

// startAuthority is an identity service that gives one application tokens for storage, as the
// emulator takes them.
func startAuthority(t *testing.T, secret *atomic.Value) *httptest.Server {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_id") != "the-app" || r.FormValue("client_secret") != secret.Load() || r.URL.Path != "/the-tenant/oauth2/v2.0/token" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}`))
			return
		}
		now := time.Now()
		token := part(map[string]string{"alg": "RS256", "typ": "JWT"}) + "." + part(map[string]any{
			"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/the-tenant/", "iat": now.Unix() - 60, "nbf": now.Unix() - 60,
			"exp": now.Add(time.Hour).Unix(), "oid": "5d0ab6c0-3a4f-4d1a-9d53-7e3c0f0f0001", "tid": "5d0ab6c0-3a4f-4d1a-9d53-7e3c0f0f0002", "ver": "1.0",
		}) + "." + base64.RawURLEncoding.EncodeToString([]byte("signature"))
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
	}))
	t.Cleanup(s.Close)
	return s
}

// principalStory is a story with storage that a service principal opens, which has a file in/a.txt.
type principalStory struct {
	*story
	endpoint, authority string // of the storage, and who knows the principal's secret
	box                 string // URL of the container
	sas                 string // opens it for the test
}

func beginPrincipal(t *testing.T) principalStory {
	t.Helper()
	p := startAzureTokens(t)
	var secret atomic.Value
	secret.Store("the-secret-of-the-app")
	authority := startAuthority(t, &secret)
	sas, err := storage.AccountSAS(azureAccount, azureKey, "https,http", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	box := p.URL + "/" + azureAccount + "/box"
	send(t, http.MethodPut, box+sas+"&restype=container", "")
	send(t, http.MethodPut, box+"/in/a.txt"+sas, "alpha\n")
	endpoint := strings.TrimPrefix(p.URL, "http://")
	y := begin(t, "allow:\n  hosts: [\""+endpoint+"\", \""+strings.TrimPrefix(authority.URL, "http://")+"\"]\n")
	return principalStory{y, endpoint, authority.URL, box, sas}
}

// TestAzurePrincipal: jobs read and write what a service principal opens. Nodes get signatures by a
// key that the server obtained; the secret is in no file of the home, and one that is wrong fails
// the job with the datastore's name.
func TestAzurePrincipal(t *testing.T) {
	y := beginPrincipal(t)
	for name, kind := range map[string]string{"blob": "type: azure_blob\ncontainer_name: box\n", "lake": "type: azure_data_lake_gen2\nfilesystem: box\n"} {
		y.berth("datastore", "create", "--file", y.file("ds.yaml", kind+"name: "+name+"\naccount_name: "+azureAccount+"\nendpoint: "+y.endpoint+
			"\nprotocol: http\ncredentials:\n  tenant_id: the-tenant\n  client_id: the-app\n  client_secret: the-secret-of-the-app\n  authority_url: "+y.authority+"\n"))
		told := y.completed(name, strings.ReplaceAll(`
command: cat ${{inputs.i}}/a.txt && echo written > "${{outputs.o}}/o p.txt"
inputs:
  i: {type: uri_folder, path: azureml://datastores/NAME/paths/in}
outputs:
  o: {type: uri_folder, path: azureml://datastores/NAME/paths/out/NAME}
`, "NAME", name))
		if !strings.Contains(told, "alpha\n") {
			t.Errorf("%s: the job saw\n%s", name, told)
		}
		if got := send(t, http.MethodGet, y.box+"/out/"+name+"/o%20p.txt"+y.sas, ""); got != "written\n" {
			t.Errorf("%s: the output is %q", name, got)
		}
	}
	err := filepath.WalkDir(y.s.Home, func(at string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // it went away
		}
		if b, err := os.ReadFile(at); err == nil && strings.Contains(string(b), "the-secret-of-the-app") {
			t.Errorf("%s has the secret in clear", at)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	y.berth("datastore", "create", "--file", y.file("ds.yaml", "type: azure_blob\ncontainer_name: box\nname: revoked\naccount_name: "+azureAccount+"\nendpoint: "+y.endpoint+
		"\nprotocol: http\ncredentials:\n  tenant_id: the-tenant\n  client_id: the-app\n  client_secret: wrong\n  authority_url: "+y.authority+"\n"))
	if status, told := y.job("refused", strings.ReplaceAll(copies, "lake", "revoked")); status != "Failed" || !strings.Contains(told, "datastore revoked") || !strings.Contains(told, "AADSTS7000215") {
		t.Errorf("%s:\n%s", status, told)
	}
}
