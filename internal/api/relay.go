package api

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/outbound"
	"github.com/berthml/berth/internal/storage"
)

// Where an address cannot carry a signature, as with the user and password of a web server, a
// node sends its requests here, and they go on from here with what opens the storage.

// relays passes requests on to storage elsewhere.
type relays struct {
	hosts []string // that the operator lets the server send requests to
	http  http.RoundTripper
}

func newRelays(hosts []string) relays {
	return relays{hosts, &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: 2 * time.Minute,
		DialContext:     (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 16, MaxConnsPerHost: 256, DisableCompression: true,
	}}
}

// relayed is a request that may be sent here.
type relayed struct {
	Grant   locate.Grant         `json:"grant"`
	Request berth.OutsideRequest `json:"request"`
}

func relayPurpose(id berth.TaskID) string { return "relay " + string(id) }

// allowed refuses an address that the operator has not listed. To a node, that the server may not
// do something is no denial of the storage.
func (x relays) allowed(address string) error {
	if err := outbound.Check(x.hosts, address); err != nil {
		return berth.Errorf(berth.Invalid, "it has credentials, with which requests go through the server: %w", err)
	}
	return nil
}

// address is where a task sends a request that is passed on.
func (s *runnerService) address(id berth.TaskID, g locate.Grant, r berth.OutsideRequest, key *storage.Key, now time.Time) (string, error) {
	to, err := key.Sign(g.Path, r, now, now)
	if err == nil {
		err = s.relays.allowed(to)
	}
	if err != nil {
		return "", berth.Errorf(berth.CodeOf(err), "datastore %s: %w", g.Datastore, err)
	}
	b, err := json.Marshal(relayed{g, r})
	if err != nil {
		return "", err
	}
	pass := s.authority.Keys.Pass(string(b), relayPurpose(id), now.Add(signatureLife))
	return s.front.BaseURL + "/runner/v1/tasks/" + url.PathEscape(string(id)) + "/relay/" + pass, nil
}

// What is passed on of requests and of answers, as [http.CanonicalHeaderKey] writes it.
var (
	relayedHeaders  = []string{"Accept", "Content-Length", "Content-Type", "Depth", "If-Match", "If-Range", "If-Unmodified-Since", "Range"}
	answeredHeaders = []string{"Accept-Ranges", "Content-Length", "Content-Range", "Content-Type", "Etag", "Last-Modified"}
)

// relay passes a request of a task on.
func (s *runnerService) relay(w http.ResponseWriter, r *http.Request) {
	s.front.serve(w, r, auth.Principal{}, func(c *call) error {
		id := berth.TaskID(r.PathValue("id"))
		var ask relayed
		raw := s.authority.Keys.OpenPass(r.PathValue("pass"), relayPurpose(id), c.now)
		if raw == "" || json.Unmarshal([]byte(raw), &ask) != nil {
			return berth.Errorf(berth.Denied, "this address is not one of task %s, or is too old", id)
		}
		if !slices.Contains(storage.WebMethods(ask.Request.Do), r.Method) {
			return berth.Errorf(berth.Denied, "this address is not for %s requests", r.Method)
		}
		key, err := s.granted(c, id, ask.Grant)
		if berth.CodeOf(err) == berth.Unauthenticated { // not by the storage
			err = berth.Errorf(berth.Gone, "the tokens of user %s were revoked", ask.Grant.User)
		}
		if err != nil {
			return err
		}
		to, err := key.Sign(ask.Grant.Path, ask.Request, c.now, c.now)
		if err == nil {
			err = s.relays.allowed(to)
		}
		if err != nil {
			return err
		}
		at, err := url.Parse(to)
		if err != nil {
			return err
		}
		s.passOn(c, at, key.Authorization())
		return nil
	})
}

// passOn passes a request on to an address.
func (s *runnerService) passOn(c *call, at *url.URL, authorization string) {
	c.sent = true // by the proxy, whatever happens
	(&httputil.ReverseProxy{
		Transport: s.relays.http, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = at, at.Host
			only(p.Out.Header, relayedHeaders)
			p.Out.Header.Set("Authorization", authorization)
			p.Out.Header.Set("User-Agent", "berth")
		},
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode/100 == 3 || res.StatusCode < 200 {
				c.w.Header().Set("X-Ms-Error-Code", "RedirectionNotFollowed") // what a node tells its user
				return berth.Errorf(berth.Invalid, "%s answers with a redirection, which is not followed", at.Host)
			}
			only(res.Header, answeredHeaders)
			// A browser must not show it with the rights that it has here.
			res.Header.Set("Content-Security-Policy", "sandbox")
			res.Header.Set("Content-Disposition", "attachment")
			res.Header.Set("X-Content-Type-Options", "nosniff")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if berth.CodeOf(err) == berth.Internal {
				w.Header().Set("X-Ms-Error-Code", "StorageDoesNotAnswer") // not this server
				err = berth.Errorf(berth.Unavailable, "%s does not answer", at.Host)
			}
			s.front.fail(w, r, err)
		},
	}).ServeHTTP(c.w, c.r)
}

// only keeps some headers.
func only(h http.Header, names []string) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return !slices.Contains(names, name) })
}
