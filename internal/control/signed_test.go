package control_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/runner/data"
)

// storage sends a request to an address that a launch has.
func (p *fixture) storage(method, address, body string) int {
	p.t.Helper()
	r := httptest.NewRequest(method, address, strings.NewReader(body))
	r.Header.Set("x-ms-blob-type", "BlockBlob")
	w := httptest.NewRecorder()
	p.api.ServeHTTP(w, r)
	return w.Code
}

// TestEndedTaskWritesNothing: the runner of a task that was given up may live on. It cannot change
// what the next attempt writes, nor what a job that is over left.
func TestEndedTaskWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := build(t, 1)
		if _, err := p.authority.Create(t.Context(), auth.Token{Name: "ann", User: "ann"}); err != nil {
			t.Fatal(err)
		}
		p.clusterOf("spot", 0, 2, map[string]any{"vmPriority": "LowPriority"})
		p.on("spot", "j", "forever ${{outputs.o}}", object{"outputs": object{"o": object{"jobOutputType": "uri_folder"}}})
		p.until("j", berth.Running)
		addresses := func(attempt int) []string {
			l, ok := p.cluster.Launch(p.tasks("j")[attempt-1].ID)
			if !ok {
				t.Fatalf("attempt %d has no launch", attempt)
			}
			return []string{data.Join(l.Outputs["o"].URL, "x"), data.Join(l.Artifacts, "outputs/x")}
		}
		check := func(what string, list []string, put, remove int) {
			t.Helper()
			for _, at := range list {
				if code := p.storage(http.MethodPut, at, what); code != put {
					t.Errorf("%s: PUT %d, not %d", what, code, put)
				}
				if code := p.storage(http.MethodDelete, at, ""); code != remove {
					t.Errorf("%s: DELETE %d, not %d", what, code, remove)
				}
			}
		}
		first := addresses(1)
		check("first attempt", first, http.StatusCreated, http.StatusAccepted)

		if code, b := p.do("POST", p.ws+"/computes/spot/evict", map[string]any{}); code != http.StatusOK {
			t.Fatalf("%d %s", code, b)
		}
		p.settle("second attempt", func() bool { s, st := p.job("j"); return s == berth.Running && st.Attempt == 2 })
		second := addresses(2)
		check("second attempt", second, http.StatusCreated, http.StatusAccepted)
		check("first attempt during the second", first, http.StatusUnauthorized, http.StatusUnauthorized)

		p.cluster.Lose(p.tasks("j")[1].ID)
		p.settle("it is lost", func() bool { return p.tasks("j")[1].State == berth.TaskDone })
		check("lost task", second, http.StatusUnauthorized, http.StatusUnauthorized)
	})
}
