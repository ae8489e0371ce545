package points

import (
	"fmt"
	"maps"
	"testing"
)

// TestFollowHoldsNobodyUp: others append while a key begins to be followed, and what they append is
// told once.
func TestFollowHoldsNobodyUp(t *testing.T) {
	s := open(t, t.TempDir(), Options{NoSync: true})
	name := func(n int) string { return fmt.Sprint("r", n) }
	log := func(n int, step int64) {
		t.Helper()
		if err := s.Append([]Entry{{name(n), "m", Point{Step: step, Value: float64(step)}}}); err != nil {
			t.Fatal(err)
		}
	}
	const owners = 4 * followedAtOnce
	for n := range owners {
		log(n, 1)
	}
	s.Follow("m", func([]Change) {}) // what is followed again is told again
	told, step, made := map[string]float64{}, int64(1), owners
	take := func(list []Change) {
		t.Helper()
		for _, c := range list {
			if before, had := told[c.Owner]; had != c.Had || had && c.Before.Value != before {
				t.Fatalf("%s was %v (%v), and is told to have been %v (%v)", c.Owner, before, had, c.Before.Value, c.Had)
			}
			told[c.Owner] = c.Now.Value
		}
	}
	s.Follow("m", func(list []Change) {
		take(list)
		step++
		for n := 0; n < owners; n += 3 {
			log(n, step)
		}
		log(made, step)
		made++
	})
	for {
		list := s.Changes("m", 100)
		if len(list) > 100 {
			t.Fatalf("%d changes at once", len(list))
		}
		if len(list) == 0 {
			break
		}
		take(list)
	}
	want := map[string]float64{}
	for n := range made {
		sum, _ := s.Last(name(n), "m")
		want[name(n)] = sum.Latest.Value
	}
	if !maps.Equal(told, want) {
		t.Errorf("%d series were told, want %d", len(told), len(want))
	}
	s.Unfollow("m")
	if log(0, 99); len(s.Changes("m", 1)) > 0 {
		t.Error("it is followed still")
	}
}
