package migrate_test

import (
	"io"
	"strings"
	"testing"

	"github.com/berthml/berth/client"
)

// TestFullWorkspace: an import into a workspace that is full ends at the first point or file that
// is refused, says what to do, and goes on when there is room.
func TestFullWorkspace(t *testing.T) {
	points := func(s *space) {
		run := s.newRun("0")
		for _, key := range []string{"a", "b"} {
			s.must("POST", "runs/log-metric", obj{"run_id": run, "key": key, "value": 1, "timestamp": 1})
		}
	}
	files := func(s *space) {
		run := s.newRun("0")
		for _, name := range []string{"a", "b"} {
			err := s.to.PutArtifact(t.Context(), "0/"+run+"/artifacts/"+name, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("text")), nil })
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	model := func(s *space) {
		run := s.newRun("0")
		s.must("POST", "runs/log-metric", obj{"run_id": run, "key": "a", "value": 1, "timestamp": 1, "model_id": s.logged("m", "0", run)})
	}
	for name, fill := range map[string]func(*space){"points": points, "files": files, "points of a model": model} {
		t.Run(name, func(t *testing.T) {
			there, here := newSpace(t), newSpace(t)
			fill(there)
			here.full.Store(true)
			n, _, err := here.bring(there.source())
			if !client.IsFull(err) || !strings.HasSuffix(err.Error(), "the workspace is full; then import again to go on") || n.LeftBehind+n.Points+n.Files > 0 {
				t.Errorf("%v, %+v", err, n)
			}
			here.full.Store(false)
			if n := here.mustBring(there.source()); n.Points+n.Files == 0 {
				t.Errorf("with room: %+v", n)
			}
		})
	}
}
