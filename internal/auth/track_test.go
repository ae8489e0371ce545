package auth_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
)

// TestTrackToken: a tracking token names its task, and is neither a runner's token nor the other
// way round.
func TestTrackToken(t *testing.T) {
	keys, err := auth.LoadKeys(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token := keys.TrackToken("job.1", now.Add(time.Hour))
	if id, ok, err := keys.CheckTrack(token, now); id != "job.1" || !ok || err != nil {
		t.Fatalf("%s %v %v", id, ok, err)
	}
	if _, err := keys.CheckTask(token, now); err == nil {
		t.Error("a tracking token opens a task")
	}
	if _, ok, _ := keys.CheckTrack(keys.TaskToken("job.1", now.Add(time.Hour)), now); ok {
		t.Error("a runner's token is taken for a tracking token")
	}
	header := token[:strings.IndexByte(token, '.')+1]
	forged := header + keys.TaskToken("job.1", now.Add(time.Hour))[3:]
	for _, bad := range []string{token + "x", token[:len(token)-1], header, header + ".", header + "a.b", header + "a.b.c", forged} {
		if _, ok, err := keys.CheckTrack(bad, now); !ok || berth.CodeOf(err) != berth.Unauthenticated {
			t.Errorf("%q: %v %v", bad, ok, err)
		}
	}
	if _, _, err := keys.CheckTrack(token, now.Add(2*time.Hour)); err == nil {
		t.Error("an expired token is good")
	}
}
