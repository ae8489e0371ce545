package track_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/track"
)

// A lateBody does something between its bytes and its end.
type lateBody struct {
	left string
	then func()
}

func (b *lateBody) Read(p []byte) (int, error) {
	if b.left == "" {
		b.then()
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

// putLate uploads a file of which the end comes after something has happened.
func (s *server) putLate(path string, then func()) int {
	s.t.Helper()
	r := httptest.NewRequest("PUT", "http://h"+path, &lateBody{"late", then})
	w := httptest.NewRecorder()
	s.s.Serve(w, r, s.ws, s.who, r.URL.EscapedPath()[1:])
	return w.Code
}

// content is what a blob of the workspace's artifacts has, nil where there is none.
func (s *server) content(name string) []byte {
	s.t.Helper()
	r, err := s.blobs.Open(s.t.Context(), s.ws.Artifacts, name)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := r.CopyRange(&b, 0, r.Size()); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

// TestSlowUploadIsCheckedAtItsEnd: whose a path is may change while a file is uploaded, and the
// token may end.
func TestSlowUploadIsCheckedAtItsEnd(t *testing.T) {
	s := start(t, t.TempDir())
	ann := s.as(track.Caller{User: "ann", Write: true})
	s.addJob("train", "ann", "mine")
	id := at(ann.must("GET", "runs/get?run_id=train", nil), "run", "info", "experiment_id").(string)
	path := "/api/2.0/mlflow-artifacts/artifacts/" + id + "/train/artifacts/f"
	code := ann.putLate(path, func() {
		err := s.db.Update(t.Context(), func(tx *store.Tx) error { return tx.Delete(s.ws.Key, "jobs", "train", "") })
		if err != nil {
			t.Fatal(err)
		}
		s.addJob("train", "bob", "mine")
	})
	if b := s.content(locate.ArtifactPath("train") + "/f"); code != http.StatusForbidden || b != nil {
		t.Errorf("for the job of another: %d, kept %q", code, b)
	}

	path = "/api/2.0/mlflow-artifacts/artifacts/" + id + "/next/artifacts/f"
	code = ann.putLate(path, func() { s.addJob("next", "bob", "mine") })
	if b := s.content(locate.ArtifactPath("next") + "/f"); code == http.StatusOK || b != nil {
		t.Errorf("for a job that came meanwhile: %d, kept %q", code, b)
	}

	ended := false
	job := s.addJob("ends", "ann", "mine")
	job.Check = func(context.Context, int64) error {
		if ended {
			return berth.Errorf(berth.Unauthenticated, "the task of this token has ended")
		}
		return nil
	}
	path = "/api/2.0/mlflow-artifacts/artifacts/" + id + "/ends/artifacts/f"
	code = s.as(job).putLate(path, func() { ended = true })
	if b := s.content(locate.ArtifactPath("ends") + "/f"); code != http.StatusUnauthorized || b != nil {
		t.Errorf("with a token that ended: %d, kept %q", code, b)
	}
}

// TestFilesOfUnlistedJobs: a file for a job's run goes to the job's folder, whether or not anything
// has listed that run before.
func TestFilesOfUnlistedJobs(t *testing.T) {
	s := start(t, t.TempDir())
	ann, bob := s.as(track.Caller{User: "ann", Write: true}), s.as(track.Caller{User: "bob", Write: true})
	s.addJob("first", "ann", "Default")
	const at = "/api/2.0/mlflow-artifacts/artifacts/0/first/artifacts/f"
	bob.wantRaw(http.StatusForbidden, "PUT", at)
	ann.wantRaw(http.StatusOK, "PUT", at)
	if b := s.content(locate.ArtifactPath("first") + "/f"); string(b) != "x" {
		t.Errorf("the job's folder has %q", b)
	}
	s.addJob("second", "ann", "Default")
	if _, err := s.blobs.Put(t.Context(), s.ws.Artifacts, locate.ArtifactPath("second")+"/f", bytes.NewReader([]byte("own")), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if code, _, out := ann.raw("GET", "/api/2.0/mlflow-artifacts/artifacts/0/second/artifacts/f", "", ""); code != http.StatusOK || out != "own" {
		t.Errorf("%d %q", code, out)
	}
	s.addJob("third", "ann", "Default")
	bob.want(http.StatusForbidden, "POST", "/api/2.0/mlflow-artifacts/mpu/create/0/third/artifacts", obj{"path": "f", "num_parts": 1})
	s.addJob("fourth", "ann", "Default")
	bob.wantRaw(http.StatusForbidden, "DELETE", "/api/2.0/mlflow-artifacts/artifacts/0/fourth/artifacts/f")
}
