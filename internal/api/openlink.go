package api

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/devbox"
)

const (
	openPath    = "/berth/open/"
	linkLife    = time.Minute
	linksByUser = 32
)

// openLink is an address that signs a browser in to an instance or a job: whoever asks for it
// first, within a minute, is its user there.
type openLink struct {
	user   string
	bearer string // the user's credentials, which the browser's cookie wraps
	prefix string // of the instance or job
	to     string // path of the application below prefix
	until  time.Time
}

// openLinks are the links that were handed out and not used yet. They are kept in memory only: a
// restart makes them void.
type openLinks struct {
	mu     sync.Mutex
	byCode map[string]openLink
}

// add keeps a link and returns its code, 128 random bits. Of one user's links only the newest are
// kept.
func (l *openLinks) add(link openLink, now time.Time) string {
	var b [16]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	code := base64.RawURLEncoding.EncodeToString(b[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	count, oldest := 0, ""
	for k, o := range l.byCode {
		switch {
		case now.After(o.until):
			delete(l.byCode, k)
		case o.user == link.user:
			if count++; oldest == "" || o.until.Before(l.byCode[oldest].until) {
				oldest = k
			}
		}
	}
	if count >= linksByUser {
		delete(l.byCode, oldest)
	}
	if l.byCode == nil {
		l.byCode = map[string]openLink{}
	}
	l.byCode[code] = link
	return code
}

// take returns a link and forgets it.
func (l *openLinks) take(code string, now time.Time) (openLink, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	link, ok := l.byCode[code]
	delete(l.byCode, code)
	return link, ok && !now.After(link.until)
}

// openInstance gives the caller a short address that opens an application in a browser: once, and
// within a minute.
func openInstance(c *call, r *resource, name, _ string) error {
	var e entry
	if err := (instanceCall{c}).instance(name, &e); err != nil {
		return err
	}
	var ask struct {
		App   string `json:"app"`
		HTTPS bool   `json:"https"`
	}
	if err := c.into(&ask); err != nil {
		return err
	}
	if ask.App == "" {
		ask.App = "JupyterLab"
	}
	if err := e.dialable(); err != nil {
		return err
	}
	at, ok := e.find(ask.App)
	if !ok {
		return berth.Errorf(berth.NotFound, "instance %s has no application %q", e.doc.Name, ask.App)
	}
	return c.sendLink(devbox.Prefix(c.ws.Key(), name), "/"+at.Name+cmp.Or(at.Path, "/"), ask.HTTPS)
}

// sendLink answers with an address that opens, once, what is at a path below prefix.
func (c *call) sendLink(prefix, to string, https bool) error {
	bearer, base := auth.Bearer(c.r.Header.Get("Authorization")), c.s.BaseURL
	if bearer == "" { // over the local socket
		if c.s.Loopback != "" && !https {
			base = c.s.Loopback
		}
		var err error
		if bearer, err = c.s.Authority.Session(c.ctx(), c.who, cookieLife, c.now); err != nil {
			return err
		}
	}
	link := openLink{user: c.who.User, bearer: bearer, prefix: prefix, to: to, until: c.now.Add(linkLife)}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.send(http.StatusOK, map[string]any{"url": base + openPath + c.s.instances.links.add(link, c.now), "expires": stamp(link.until)})
}

// redeem turns a link into a cookie for its instance, and goes on to the application.
func (s *instanceService) redeem(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if r.Method != http.MethodGet { // a HEAD, which comes the same way, does not use the link up
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	now := s.db.Now()
	link, ok := s.links.take(r.PathValue("code"), now)
	if !ok {
		s.front.fail(w, r, berth.Errorf(berth.Unauthenticated, "this address was used before or is too old; run `berth open NAME` again"))
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: instanceCookie, Value: s.authority.Keys.Pass(link.bearer, "cookie "+link.prefix, now.Add(cookieLife)), Path: link.prefix + "/",
		MaxAge: int(cookieLife.Seconds()), HttpOnly: true, Secure: !fromLoopback(r), SameSite: http.SameSiteStrictMode,
	})
	// A redirect from here still counts as begun by whoever led to this page, and a strict cookie
	// would stay at home. A page that goes on by itself does not.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=" + htmlEscape(link.prefix+link.to) + "\"><title>Berth</title>\n"
	_, _ = io.WriteString(w, page)
}

func htmlEscape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;", ";", "%3B").Replace(s)
}
