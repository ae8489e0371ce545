package storage

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
)

// TestV4 is the example of Amazon's documentation of signed addresses.
func TestV4(t *testing.T) {
	s := &Store{Type: S3, Container: "examplebucket", Region: "us-east-1", base: url.URL{Scheme: "https", Host: "examplebucket.s3.amazonaws.com"}}
	k, err := s.Open(
		map[string]any{"credentialsType": "AccessKey", "accessKeyId": "AKIAIOSFODNN7EXAMPLE"},
		map[string]any{"secretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
	)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	got, err := k.Sign("test.txt", berth.OutsideRequest{Do: berth.OutsideGet}, now, now.Add(24*time.Hour))
	if want := "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"; err != nil || !strings.HasSuffix(got, "X-Amz-Signature="+want) {
		t.Errorf("%s, %v", got, err)
	}
}

// TestNamesStayBelow: whatever a runner asks for, what is signed is below the place.
func TestNamesStayBelow(t *testing.T) {
	s, err := Read(map[string]any{"datastoreType": S3, "bucket": "data"})
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Open(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "a/../../x", "/x", "a//b", `a\b`, ".", "..", "a/", strings.Repeat("x", 300)} {
		if got, err := k.Sign("mine", berth.OutsideRequest{Do: berth.OutsideGet, Name: name}, time.Now(), time.Now()); err == nil {
			t.Errorf("%q became %s", name, got)
		}
	}
	for place, want := range map[string]string{"mine": "mine%2F", "": ""} {
		got, err := k.Sign(place, berth.OutsideRequest{Do: berth.OutsideList, Name: ""}, time.Now(), time.Now())
		if u, _ := url.Parse(got); err != nil || !strings.Contains(u.RawQuery, "prefix="+want+"&") && !strings.HasSuffix(u.RawQuery, "prefix="+want) {
			t.Errorf("the list of %q is %s, %v", place, got, err)
		}
	}
	if got, err := k.Sign("", berth.OutsideRequest{Do: berth.OutsidePut}, time.Now(), time.Now()); err == nil {
		t.Errorf("a bucket is written to as a file: %s", got)
	}
}

// TestEndpoints: what a document calls an endpoint is a server and nothing else.
func TestEndpoints(t *testing.T) {
	for _, bad := range []string{"ftp://x.org", "https://u:p@x.org", "https://x.org/path", "https://x.org?q=1", "https://x.org#f", "https://", "x.org", "https://a b", "https://x.org\\@y.org"} {
		if s, err := Read(map[string]any{"datastoreType": S3, "bucket": "data", "endpoint": bad}); err == nil {
			t.Errorf("endpoint %q became %s", bad, s.base.String())
		}
	}
	for endpoint, want := range map[string]string{
		"": "https://st.blob.core.windows.net/box", "core.chinacloudapi.cn/": "https://st.blob.core.chinacloudapi.cn/box", "127.0.0.1:10000": "https://127.0.0.1:10000/st/box",
	} {
		s, err := Read(map[string]any{"datastoreType": AzureBlob, "accountName": "st", "containerName": "box", "endpoint": endpoint})
		if err != nil || s.base.String() != want {
			t.Errorf("endpoint %q: %v, %v", endpoint, s, err)
		}
	}
	s, err := Read(map[string]any{"datastoreType": AzureLake, "accountName": "st", "filesystem": "box"})
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{
		"https://st.blob.core.windows.net/box/a%20b/c", "wasbs://box@st.blob.core.windows.net/a%20b/c", "abfss://box@st.dfs.core.windows.net/a%20b/c/", "https://st.dfs.core.windows.net/box/a b/c",
	} {
		if got, ok := s.Find(uri); !ok || got != "a b/c" {
			t.Errorf("%s is at %q, %v", uri, got, ok)
		}
	}
	for _, uri := range []string{"https://st.blob.core.windows.net/boxes/x", "https://st.blob.core.windows.net.evil.org/box/x", "s3://box/x"} {
		if got, ok := s.Find(uri); ok {
			t.Errorf("%s is taken for %q", uri, got)
		}
	}
}

// TestShortNamesOfBuckets: s3:// and gs:// name Amazon's and Google's buckets, not those of the
// same name that somebody has elsewhere; these have the address of their server.
func TestShortNamesOfBuckets(t *testing.T) {
	for kind, short := range map[string]string{S3: "s3://box/a", Google: "gs://box/a"} {
		for endpoint, want := range map[string]string{"": short, "http://127.0.0.1:9000": "http://127.0.0.1:9000/box/a"} {
			s, err := Read(map[string]any{"datastoreType": kind, "bucket": "box", "endpoint": endpoint})
			if err != nil {
				t.Fatal(err)
			}
			for _, uri := range []string{short, "http://127.0.0.1:9000/box/a"} {
				if path, ok := s.Find(uri); ok != (uri == want) || ok && path != "a" {
					t.Errorf("%s is at %q, %v, for a bucket with endpoint %q", uri, path, ok, endpoint)
				}
			}
		}
	}
}

// TestServiceAccount: an address for Google's storage has a signature that the public key of the
// account confirms, of the request as Google writes it down.
func TestServiceAccount(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	file, err := json.Marshal(map[string]string{"client_email": "me@example.org", "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(map[string]any{"datastoreType": Google, "bucket": "data"})
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.Open(map[string]any{"credentialsType": "ServiceAccount"}, map[string]any{"serviceAccountKey": string(file)})
	if err != nil {
		t.Fatal(err)
	}
	huge, err := json.Marshal(map[string]string{"client_email": "me@example.org", "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: make([]byte, 32<<10)}))})
	if err != nil {
		t.Fatal(err)
	}
	// A signature with a key as large as that would take minutes.
	if _, err := s.Open(map[string]any{"credentialsType": "ServiceAccount"}, map[string]any{"serviceAccountKey": string(huge)}); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a key of 32 kB: %v", err)
	}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	got, err := k.Sign("a b", berth.OutsideRequest{Do: berth.OutsideGet}, now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	query := "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=me%40example.org%2F20300102%2Fauto%2Fstorage%2Fgoog4_request&X-Goog-Date=20300102T030405Z&X-Goog-Expires=3600&X-Goog-SignedHeaders=host"
	address, signature, _ := strings.Cut(got, "&X-Goog-Signature=")
	if address != "https://storage.googleapis.com/data/a%20b?"+query {
		t.Errorf("the address is %s", address)
	}
	ask := sha256.Sum256([]byte("GET\n/data/a%20b\n" + query + "\nhost:storage.googleapis.com\n\nhost\nUNSIGNED-PAYLOAD"))
	text := sha256.Sum256([]byte("GOOG4-RSA-SHA256\n20300102T030405Z\n20300102/auto/storage/goog4_request\n" + hex.EncodeToString(ask[:])))
	raw, err := hex.DecodeString(signature)
	if err != nil {
		t.Fatal(err)
	}
	if err := rsa.VerifyPKCS1v15(&private.PublicKey, crypto.SHA256, text[:], raw); err != nil {
		t.Error(err)
	}
	if _, err := s.Open(map[string]any{"credentialsType": "ServiceAccount"}, map[string]any{"serviceAccountKey": "{}"}); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a file without a key is %v", err)
	}
}
