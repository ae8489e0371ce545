package slurm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// restSettings say how slurmrestd is reached. The token is a secret, see [RestToken].
type restSettings struct {
	Address string `json:"address"` // https://HOST:PORT
	User    string `json:"user"`
	CA      string `json:"ca"` // certificates that its own may come from; empty: the machine's
}

// RestToken is where a compute's document has the token of slurmrestd.
const RestToken = "properties.restSettings.token"

// restTime is how long an answer may take: slurmrestd waits 19 s for a controller that is away.
// maxAnswer is how long one may be: it lists the jobs of everybody.
const (
	restTime  = 30 * time.Second
	maxAnswer = 256 << 20
)

// check refuses settings that could never work.
func (s *restSettings) check() error {
	const at = "properties.properties.restSettings."
	u, err := url.Parse(s.Address)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return berth.Errorf(berth.Invalid, "%saddress %q must be https://HOST:PORT", at, s.Address)
	case s.User == "" || strings.ContainsAny(s.User, " \t\r\n\x00"):
		return berth.Errorf(berth.Invalid, "%suser %q must be an account of the cluster, that of the token", at, s.User)
	case s.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(s.CA)):
		return berth.Errorf(berth.Invalid, "%sca has no certificate in PEM", at)
	}
	return nil
}

// checkRest refuses what slurmrestd could never do.
func (s *site) checkRest() error {
	if s.Rest == nil {
		return nil
	}
	if s.Address != "" {
		return berth.Errorf(berth.Invalid, "properties.properties: a compute has the address of a login node or restSettings, not both")
	}
	options := slices.Clone(s.Options)
	for _, x := range s.Sizes {
		options = append(options, x.Options...)
	}
	for _, o := range options {
		if err := restOption(map[string]any{}, o, false); err != nil {
			return err
		}
	}
	return s.Rest.check()
}

// rest are slurmrestd's calls.
type rest struct {
	at   restSettings
	http *http.Client

	mu      sync.Mutex
	token   string // empty: it is not connected
	version string // of the API; empty until slurmrestd was asked
	kept    bool   // there are accounts
}

func newRest(s restSettings) *rest {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		t.RootCAs = x509.NewCertPool()
		t.RootCAs.AppendCertsFromPEM([]byte(s.CA)) // check has seen it
	}
	return &rest{at: s, http: &http.Client{
		Timeout:   restTime,
		Transport: &http.Transport{TLSClientConfig: t, MaxConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("slurmrestd redirects to another address, which is not followed")
		},
	}}
}

// connect begins to use the token that a compute has now.
func (r *rest) connect(a driver.Access) error {
	token := strings.TrimPrefix(strings.TrimSpace(a.Secrets[RestToken]), "SLURM_JWT=") // as scontrol prints it
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return berth.Errorf(berth.Invalid, "the compute has no token of slurmrestd; attach it again with one, as `scontrol token` makes it")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token, r.version = token, ""
	return nil
}

func (r *rest) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token = ""
	r.http.CloseIdleConnections()
}

// expiry is until when a token is good, as it says itself; zero when it does not.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var v struct {
		Exp float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(b, &v) != nil || v.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(v.Exp), 0)
}

// refused is the error of a token that is not good. Nothing was done.
func (r *rest) refused(why string) error {
	return berth.Errorf(berth.Unavailable, "%w", &commandError{name: "slurmrestd", msg: "the token of " + r.at.User + " for Slurm " + why + "; attach again with a new one"})
}

// The versions of the API that are known. What a job asks for has other names since firstWords.
var known = [...]int{38, 40, 41, 42, 43}

const firstWords = 40

// versionOf is the version whose list of jobs is at a path, 0 where it is none.
func versionOf(path string) int {
	rest, ok := strings.CutPrefix(path, "/slurm/v0.0.")
	version, rest, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(version)
	if !ok || err != nil || strings.Trim(rest, "/") != "jobs" {
		return 0
	}
	return n
}

// api is the newest version of the API that both sides know, such as v0.0.38.
func (r *rest) api(ctx context.Context) (string, error) {
	r.mu.Lock()
	version := r.version
	r.mu.Unlock()
	if version != "" {
		return version, nil
	}
	var all struct {
		restAnswer
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := r.send(ctx, http.MethodGet, "/openapi/v3", nil, &all); err != nil {
		return "", err
	}
	newest, offered := 0, []string{}
	for path := range all.Paths {
		n := versionOf(path)
		if n > 0 {
			offered = append(offered, "v0.0."+strconv.Itoa(n))
		}
		if slices.Contains(known[:], n) {
			newest = max(newest, n)
		}
	}
	if newest == 0 {
		slices.Sort(offered)
		return "", berth.Errorf(berth.Unsupported, "slurmrestd offers %s of its API, and this server knows v0.0.38 and v0.0.40 to v0.0.43", strings.Join(append(offered, "no other version"), ", "))
	}
	version = "v0.0." + strconv.Itoa(newest)
	_, kept := all.Paths["/slurmdb/"+version+"/job/{job_id}"]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version, r.kept = version, kept
	return version, nil
}

// newer says whether a version of the API has the names of firstWords.
func newer(version string) bool {
	n, _ := strconv.Atoi(version[strings.LastIndexByte(version, '.')+1:])
	return n >= firstWords
}

// restAnswer is what every answer may have.
type restAnswer struct {
	Errors []restError `json:"errors"`
	Meta   struct {
		Slurm struct {
			Release string `json:"release"`
			Cluster string `json:"cluster"`
		} `json:"slurm"`
	} `json:"meta"`
}

func (a *restAnswer) errors() []restError { return a.Errors }

// restError is what went wrong, with Slurm's number of it by one of several names.
type restError struct {
	Number      amount `json:"error_number"`
	Code        amount `json:"error_code"`
	Errno       amount `json:"errno"`
	Error       string `json:"error"`
	Description string `json:"description"`
}

func (e restError) number() int64 {
	for _, n := range []amount{e.Number, e.Code, e.Errno} {
		if n.set && n.n != 0 {
			return n.n
		}
	}
	return 0
}

// call calls the part of the API for the controller.
func (r *rest) call(ctx context.Context, method, path string, in any, out interface{ errors() []restError }) error {
	version, err := r.api(ctx)
	if err != nil {
		return err
	}
	return r.send(ctx, method, "/slurm/"+version+path, in, out)
}

// send sends a request and decodes the answer. What Slurm says that was wrong is the error.
func (r *rest) send(ctx context.Context, method, path string, in any, out interface{ errors() []restError }) error {
	r.mu.Lock()
	token := r.token
	r.mu.Unlock()
	if token == "" {
		// As of a refusal: nothing was sent.
		return berth.Errorf(berth.Unavailable, "%w", &commandError{name: "slurmrestd", msg: "slurmrestd is not connected"})
	}
	if at := expiry(token); !at.IsZero() && time.Now().After(at) {
		return r.refused("has expired, on " + at.UTC().Format("2006-01-02 15:04 MST"))
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(r.at.Address, "/")+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("X-SLURM-USER-NAME", r.at.User)
	req.Header.Set("X-SLURM-USER-TOKEN", token)
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := r.http.Do(req)
	if err != nil {
		return berth.Errorf(berth.Unavailable, "slurmrestd does not answer: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return berth.Errorf(berth.Unavailable, "the answer of slurmrestd broke off: %w", err)
	case len(b) > maxAnswer:
		return berth.Errorf(berth.Unavailable, "slurmrestd answers with more than %d MiB", maxAnswer>>20)
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return r.refused("has expired or is refused")
	case res.StatusCode == http.StatusNotFound && !json.Valid(b):
		r.mu.Lock()
		r.version = "" // Slurm may be another one since
		r.mu.Unlock()
		return berth.Errorf(berth.Unavailable, "slurmrestd does not know %s", path)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return berth.Errorf(berth.Unavailable, "slurmrestd answered with status %d and something that is not understood: %w", res.StatusCode, err)
	}
	if res.StatusCode >= 300 || len(out.errors()) > 0 {
		return r.failed(res.StatusCode, out.errors())
	}
	return nil
}

// Slurm's numbers of errors.
const (
	numAuth    = 1007 // protocol authentication error
	numConnect = 1800 // the controller could not be connected to
	numNothing = 9003 // nothing was found
)

// failed is the error of an answer.
func (r *rest) failed(status int, all []restError) error {
	var said []string
	for _, e := range all {
		text := e.Description
		if text == "" || !strings.Contains(text, e.Error) && e.number() > 0 {
			text = strings.TrimPrefix(text+": "+e.Error, ": ")
		}
		switch n := e.number(); {
		case n == numAuth:
			return r.refused("has expired or is refused")
		case n == numConnect:
			return berth.Errorf(berth.Unavailable, "%w", &commandError{name: "slurmrestd", msg: "Slurm's controller does not answer slurmrestd"})
		case n == -1 && strings.Contains(e.Error, "Unspecified") || n > 5000 && n < 6000:
			// Version 0.0.38 says no more of either.
			return berth.Errorf(berth.Unavailable, "Slurm's controller does not answer slurmrestd, or does not accept the token of %s any more", r.at.User)
		}
		said = append(said, text)
	}
	if len(said) == 0 {
		return berth.Errorf(berth.Unavailable, "slurmrestd answers with status %d", status)
	}
	return &commandError{name: "slurmrestd", msg: strings.Join(said, "; "), err: errors.New("status " + strconv.Itoa(status))}
}
