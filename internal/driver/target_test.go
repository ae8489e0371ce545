package driver_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
)

// flaky fails its first calls.
type flaky struct {
	driver.Driver
	errs  []error
	calls int
}

func (f *flaky) Probe(ctx context.Context) (driver.Info, error) {
	f.calls++
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return driver.Info{}, err
	}
	return driver.Info{SharedDisk: true}, nil
}

func TestRetries(t *testing.T) {
	busy := berth.Errorf(berth.Unavailable, "busy")
	for _, tt := range []struct {
		name  string
		errs  []error
		calls int
		code  berth.Code
	}{
		{"at once", nil, 1, ""},
		{"later", []error{busy, busy}, 3, ""},
		{"never", []error{busy, busy, busy, busy}, 3, berth.Unavailable},
		{"for good", []error{berth.Errorf(berth.Invalid, "wrong")}, 1, berth.Invalid},
		{"without a code", []error{errors.New("odd")}, 1, berth.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{errs: tt.errs}
				info, err := driver.NewTarget("gpu", f, nil).Probe(t.Context())
				if f.calls != tt.calls || berth.CodeOf(err) != tt.code {
					t.Errorf("%d calls, %v", f.calls, err)
				}
				if err == nil && !info.SharedDisk {
					t.Error("the answer is lost")
				}
				if err != nil && !strings.HasPrefix(err.Error(), "compute gpu: ") {
					t.Errorf("%v does not name the target", err)
				}
			})
		})
	}
}

// stuck never answers.
type stuck struct{ driver.Driver }

func (stuck) Stop(ctx context.Context, _ driver.Handle, _ driver.Stop) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := driver.NewTarget("gpu", stuck{}, nil).Stop(t.Context(), "h", driver.Stop{Grace: time.Second})
		if berth.CodeOf(err) != berth.Unavailable || time.Since(began) > 2*time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := driver.NewTarget("gpu", stuck{}, nil).Stop(ctx, "h", driver.Stop{Grace: time.Second}); err == nil || ctx.Err() == nil {
			t.Errorf("%v", err)
		}
	})
}

func TestOptional(t *testing.T) {
	d := fake.New(fake.Options{})
	tg := driver.NewTarget("gpu", d, nil)
	defer tg.Close()
	if _, err := tg.Dial(t.Context(), "h", 80); berth.CodeOf(err) != berth.Unsupported {
		t.Errorf("%v", err)
	}
	if _, err := tg.Exec(t.Context(), "h", driver.Command{}); berth.CodeOf(err) != berth.Unsupported {
		t.Errorf("%v", err)
	}
	if _, err := tg.Log(t.Context(), "h", 0); berth.CodeOf(err) != berth.Unsupported {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hints, err := tg.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tg.Start(ctx, berth.Launch{Task: "t.1", Command: "true"}); err != nil {
		t.Fatal(err)
	}
	<-hints
	cancel()
	for range hints { // until it is closed
	}
}

// slow makes nodes that are never there.
type slow struct {
	driver.Driver
	adds int
}

func (s *slow) AddNode(ctx context.Context, _ driver.NodeSpec) error {
	s.adds++
	<-ctx.Done()
	return ctx.Err()
}

func (*slow) RemoveNode(context.Context, string) error { return nil }

func TestAddNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &slow{}, time.Now()
		err := driver.NewTarget("gpu", s, nil).AddNode(t.Context(), driver.NodeSpec{Name: "a"})
		if berth.CodeOf(err) != berth.Unavailable || time.Since(began) != 2*time.Minute || s.adds != 1 {
			t.Errorf("%v after %v and %d calls", err, time.Since(began), s.adds)
		}
		if err := driver.NewTarget("gpu", s, nil).RemoveNode(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
	tg := driver.NewTarget("gpu", stuck{}, nil)
	if err := tg.AddNode(t.Context(), driver.NodeSpec{Name: "a"}); berth.CodeOf(err) != berth.Unsupported {
		t.Errorf("%v", err)
	}
	if err := tg.RemoveNode(t.Context(), "a"); berth.CodeOf(err) != berth.Unsupported {
		t.Errorf("%v", err)
	}
}

// TestNoTimesOfDay: what a target says and is asked has no time of day, so that its clock does not
// matter.
func TestNoTimesOfDay(t *testing.T) {
	for _, v := range []any{driver.Observed{}, driver.Info{}, driver.Stop{}, driver.NodeSpec{}, driver.Connection{}, berth.Exit{}} {
		if path := timeIn(reflect.TypeOf(v)); path != "" {
			t.Errorf("%T%s is a time", v, path)
		}
	}
}

// timeIn is where a type has a time, empty when it has none.
func timeIn(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "."
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		return timeIn(t.Elem())
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if path := timeIn(t.Field(i).Type); path != "" {
				return "." + t.Field(i).Name + path
			}
		}
	}
	return ""
}

// TestTurn: what a runner is told names the compute where it is an error, which keeps its code.
func TestTurn(t *testing.T) {
	tg := driver.NewTarget("gpu", fake.New(fake.Options{Turns: "all"}), nil)
	defer tg.Close()
	if _, err := tg.Start(t.Context(), berth.Launch{Task: "a.1", Command: "forever"}); err != nil {
		t.Fatal(err)
	}
	if got, err := tg.Turn(t.Context(), "a.1", berth.Turn{Array: "all"}); err != nil || got.Task != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := tg.Turn(t.Context(), "b.1", berth.Turn{Array: "all"}); berth.CodeOf(err) != berth.Denied || !strings.Contains(err.Error(), "compute gpu") {
		t.Errorf("for another task: %v", err)
	}
	got, err := driver.NewTarget("gpu", stuck{}, nil).Turn(t.Context(), "a.1", berth.Turn{Array: "all"})
	if berth.CodeOf(err) != berth.Unsupported || got.Task != berth.NoTurn {
		t.Errorf("of a target whose runners have one task: %+v, %v", got, err)
	}
}
