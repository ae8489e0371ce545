package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/berthml/berth"
)

// A browser does not know the authority of a server that somebody started on their own machine.
// Such a server, which nobody else can reach, has a second listener for its owner's browser: plain
// HTTP on the loopback interface, under a name of its own below "localhost", so that no other port
// of the machine is sent its cookies. It serves nothing but applications of instances and services
// of jobs, to cookies that were got with a link that was asked for over the local socket.

type loopbackKey struct{}

// fromLoopback reports whether a request came over that listener.
func fromLoopback(r *http.Request) bool { return r.Context().Value(loopbackKey{}) != nil }

// LoopbackHandler answers what comes over the listener for the owner's browser.
func (s *Server) LoopbackHandler() http.Handler {
	host := strings.TrimPrefix(s.Loopback, "http://")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host { // a page elsewhere whose name was made to lead here
			http.Error(w, "this address is not served here; run `berth open NAME`", http.StatusMisdirectedRequest)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), loopbackKey{}, true))
		r.Header.Del("Authorization") // tokens do not travel in clear, not even here
		if p := r.URL.EscapedPath(); !strings.HasPrefix(p, openPath) && !strings.HasPrefix(p, instancePath) && !strings.HasPrefix(p, berth.ServiceRoot) {
			s.fail(w, r, berth.Errorf(berth.NotFound, "there are only applications of instances and services of jobs here; run `berth open NAME`"))
			return
		}
		s.ServeHTTP(w, r)
	})
}

// ownOrigin reports whether a page of this origin is one of ours, as the listener of r has them.
func (s *Server) ownOrigin(r *http.Request, origin string) bool {
	if fromLoopback(r) {
		return strings.EqualFold(origin, s.Loopback)
	}
	return s.sameOrigin(origin)
}
