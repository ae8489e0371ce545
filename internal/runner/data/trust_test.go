package data_test

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/data"
)

func TestTrust(t *testing.T) {
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer plain.Close()
	defer secure.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))

	tr, err := data.Trust(&http.Transport{ForceAttemptHTTP2: true}, ca)
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Transport: tr}
	get := func(url string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	if err := get(plain.URL); err != nil || data.Armed(tr) {
		t.Errorf("%v; the roots were read for a request that needs none: %v", err, data.Armed(tr))
	}
	if err := get(secure.URL); err != nil || !data.Armed(tr) {
		t.Errorf("a server with a certificate of the CA: %v", err)
	}
	c.CloseIdleConnections()

	tr, err = data.Trust(new(http.Transport), "")
	if err != nil {
		t.Fatal(err)
	}
	c.Transport = tr
	if err := get(secure.URL); err == nil {
		t.Error("a server whose CA nobody named is trusted")
	}
	if _, err := data.Trust(new(http.Transport), "not PEM"); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("%v", err)
	}
}
