package track

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A slowBody sends a byte after each pause.
type slowBody struct{ pause time.Duration }

func (b slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.pause)
	p[0] = ' '
	return 1, nil
}

// TestSlowBodies: what comes too slowly is refused in MLflow's words.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := httptest.NewRequest("POST", "http://h/", slowBody{15 * time.Second})
		_, err := (&call{w: httptest.NewRecorder(), r: r}).readBody(maxBody)
		took := time.Since(began)
		if f, _ := faultOf(err); err == nil || took > 2*time.Minute || f.Code != badRequest || !strings.Contains(f.Message, "too slowly") {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
