package api

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
)

// TestAddTimes: whatever the clock of a runner says, no phase takes less than nothing, and what is
// known stays.
func TestAddTimes(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1e9, 0).Add(time.Duration(s * float64(time.Second))) }
	for _, tt := range []struct {
		name       string
		have, told berth.Waterfall
		at, now    time.Time
		want       berth.Waterfall
	}{
		{
			"as it was",
			berth.Waterfall{Placed: at(0)},
			berth.Waterfall{Staging: at(1), Started: at(2), Ended: at(3)},
			at(3), at(4),
			berth.Waterfall{Placed: at(0), Staging: at(1), Started: at(2), Ended: at(3)},
		},
		{
			"a machine an hour behind",
			berth.Waterfall{Placed: at(0)},
			berth.Waterfall{Staging: at(-3599), Started: at(-3598), Ended: at(-3597)},
			at(-3597), at(3),
			berth.Waterfall{Placed: at(0), Staging: at(1), Started: at(2), Ended: at(3)},
		},
		{
			"a machine an hour ahead",
			berth.Waterfall{Placed: at(0)},
			berth.Waterfall{Staging: at(3601), Started: at(3602), Ended: at(3603)},
			at(3603), at(3),
			berth.Waterfall{Placed: at(0), Staging: at(1), Started: at(2), Ended: at(3)},
		},
		{
			"set forward between its start and its end",
			berth.Waterfall{Placed: at(3600)},
			berth.Waterfall{Started: at(1), Ended: at(3603)},
			at(3603), at(3604),
			berth.Waterfall{Placed: at(3600), Started: at(3600), Ended: at(3603)},
		},
		{
			"set back while it ran",
			berth.Waterfall{Placed: at(-3600), Started: at(-3599)},
			berth.Waterfall{Started: at(1), Ended: at(-3500)},
			at(-3500), at(-3500),
			berth.Waterfall{Placed: at(-3600), Started: at(-3599), Ended: at(-3500)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addTimes(&tt.have, tt.told, tt.at, tt.now)
			if d := cmp.Diff(tt.want, tt.have); d != "" {
				t.Error(d)
			}
		})
	}
}
