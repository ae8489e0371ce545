package api

import (
	"testing"
	"time"
)

func TestBodyPace(t *testing.T) {
	p := BodyPace{Pause: time.Minute, Grace: 2 * time.Minute, Rate: 100}
	for _, tt := range []struct {
		n     int64
		spent time.Duration
		want  time.Duration
	}{
		{0, 0, time.Minute},
		{0, 90 * time.Second, 30 * time.Second},
		{1, 2 * time.Minute, 0},
		{1 << 40, 24 * time.Hour, time.Minute},                      // a large upload over a slow link
		{100 * 3600, time.Hour, time.Minute},                        // just fast enough
		{100 * 3600, time.Hour + 110*time.Second, 10 * time.Second}, // not quite
		{100 * 3600, 2 * time.Hour, 0},
	} {
		if got := p.wait(tt.n, tt.spent); got != tt.want {
			t.Errorf("%d bytes in %s: %s, want %s", tt.n, tt.spent, got, tt.want)
		}
	}
}
