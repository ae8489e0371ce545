package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/keepalive"
	"github.com/berthml/berth/internal/runner/data"
)

// HTTPHome is a server reached over HTTP.
type HTTPHome struct {
	base   string
	client *http.Client
	local  *keepalive.Client // carries reports when the server is on this machine
}

// NewHTTPHome makes the home at url: https://HOST[:PORT], http://… or unix:///path/of/socket. ca is
// PEM to trust besides the system's roots; it may be empty.
func NewHTTPHome(home, ca string) (*HTTPHome, error) {
	tr := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSHandshakeTimeout:   10 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   4,
	}
	trusting, err := data.Trust(tr, ca)
	if err != nil {
		return nil, err
	}
	h := &HTTPHome{client: &http.Client{Transport: trusting}}
	if path, ok := strings.CutPrefix(home, "unix://"); ok {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
		h.local = &keepalive.Client{Path: path}
		home = "http://berth"
	}
	u, err := url.Parse(home)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, berth.Errorf(berth.Invalid, "%q is not the address of a server: https://HOST:PORT or unix:///PATH", home)
	}
	h.base = strings.TrimSuffix(home, "/")
	return h, nil
}

// Close lets idle connections go.
func (h *HTTPHome) Close() {
	h.client.CloseIdleConnections()
	if h.local != nil {
		h.local.Close()
	}
}

// Report is [Home.Report].
func (h *HTTPHome) Report(ctx context.Context, rs []berth.Report) (Reply, error) {
	body, err := json.Marshal(rs)
	if err != nil {
		return Reply{}, err
	}
	var reply Reply
	token := "" // of any of them, for the server to read on
	if len(rs) > 0 {
		token = rs[0].Token
	}
	const path = "/runner/v1/reports"
	if h.local != nil {
		err = h.local.Post(ctx, path, body, func(res *http.Response) error { return read(res, &reply) })
	} else {
		err = h.post(ctx, path, "application/json", token, body, &reply)
	}
	return reply, err
}

// AppendLog is [Home.AppendLog].
func (h *HTTPHome) AppendLog(ctx context.Context, t Task, name string, offset int64, p []byte) (int64, error) {
	q := url.Values{"name": {name}, "offset": {strconv.FormatInt(offset, 10)}}
	var answer struct {
		Size int64 `json:"size"`
	}
	path := "/runner/v1/tasks/" + url.PathEscape(string(t.ID)) + "/log?" + q.Encode()
	err := h.post(ctx, path, "application/octet-stream", t.Token, p, &answer)
	if berth.CodeOf(err) == berth.Conflict {
		err = nil
	}
	return answer.Size, err
}

// Turn asks for the next task of an array. t is the task that the runner was started for.
func (h *HTTPHome) Turn(ctx context.Context, t Task, ask berth.Turn) (int, error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return berth.NoTurn, err
	}
	const unsaid = berth.NoTurn - 1
	answer := berth.TurnAnswer{Task: unsaid}
	err = h.post(ctx, "/runner/v1/tasks/"+url.PathEscape(string(t.ID))+"/turn", "application/json", t.Token, body, &answer)
	if err == nil && answer.Task <= unsaid {
		err = berth.Errorf(berth.Unavailable, "the server did not say which task is next")
	}
	if err != nil {
		return berth.NoTurn, err
	}
	return answer.Task, nil
}

// SignStorage is [Home.SignStorage].
func (h *HTTPHome) SignStorage(ctx context.Context, t Task, grant string, rs []berth.OutsideRequest) ([]string, error) {
	body, err := json.Marshal(map[string]any{"grant": grant, "requests": rs})
	if err != nil {
		return nil, err
	}
	var answer struct {
		URLs []string `json:"urls"`
	}
	err = h.post(ctx, "/runner/v1/tasks/"+url.PathEscape(string(t.ID))+"/storage", "application/json", t.Token, body, &answer)
	return answer.URLs, err
}

// Input is [Inputter.Input].
func (h *HTTPHome) Input(ctx context.Context, t Task) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.base+"/runner/v1/tasks/"+url.PathEscape(string(t.ID))+"/input", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+t.Token)
	res, err := h.client.Do(req)
	if err != nil {
		return nil, berth.Errorf(berth.Unavailable, "reaching the server: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, read(res, nil)
	}
	return res.Body, nil
}

// post sends body and reads the answer's JSON into out, which an answer of 409 fills too.
func (h *HTTPHome) post(ctx context.Context, path, kind, token string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := h.client.Do(req)
	if err != nil {
		return berth.Errorf(berth.Unavailable, "reaching the server: %w", err)
	}
	return read(res, out)
}

// read decodes the JSON of an answer into out, that of a 409 too, and turns other answers into
// errors.
func read(res *http.Response, out any) error {
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return berth.Errorf(berth.Unavailable, "reading the server's answer: %w", err)
	}
	switch res.StatusCode {
	case http.StatusOK:
		// An answer that is not ours is not a receipt: a server that was stopped, or a proxy, sent
		// it.
		if err := json.Unmarshal(b, out); err != nil || bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
			return berth.Errorf(berth.Unavailable, "the server answered %s without a receipt: %q", res.Status, clip(b))
		}
		return nil
	case http.StatusConflict:
		if err := json.Unmarshal(b, out); err != nil {
			return berth.Errorf(berth.Unavailable, "the server answered %s: %q", res.Status, clip(b))
		}
	}
	if res.StatusCode/100 == 2 {
		return berth.Errorf(berth.Unavailable, "the server answered %s, which is not a receipt", res.Status)
	}
	var said struct{ Error struct{ Message string } }
	if json.Unmarshal(b, &said) == nil && said.Error.Message != "" {
		return berth.Errorf(berth.CodeOfHTTP(res.StatusCode), "%s", said.Error.Message)
	}
	return berth.Errorf(berth.CodeOfHTTP(res.StatusCode), "the server answered %s: %s", res.Status, clip(b))
}

func clip(b []byte) string {
	if len(b) > 200 {
		b = b[:200]
	}
	return strings.TrimSpace(string(b))
}
