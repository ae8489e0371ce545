package api

import (
	"net/http"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// errTask is the answer to a process of a task where only people and their programs are wanted.
func errTask(what string) error {
	return berth.Errorf(berth.Denied, "%s is not for the processes of a job: give the job a token of its own, created with `berth token create`, and the server's https address", what)
}

// NotForTasks answers every request of a process of a task on the server's own socket.
func (s *Server) NotForTasks(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, errTask("the server's socket"))
}

// identified refuses a process of a task at the identity endpoint, unless what next takes as its
// key is the token of an instance, which is checked for where it comes from.
func (s *identityService) identified(next http.HandlerFunc, key func(*http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.fromTask != nil && !auth.OfInstance(key(r)) && s.fromTask(r) {
			s.front.fail(w, r, errTask("the identity endpoint"))
			return
		}
		next(w, r)
	}
}
