package host_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
	"github.com/berthml/berth/internal/runner/host"
)

func open(t interface {
	Helper()
	Fatal(...any)
}, dir, boot string,
) *host.Journal {
	t.Helper()
	j, err := host.OpenJournal(dir, boot)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestJournal is a law: whatever happens to a journal, opening it again shows what it showed
// before, also when the last write was cut off.
func TestJournal(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		boot := "boot0"
		j := open(t, dir, boot)
		want := map[berth.TaskID]host.Entry{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := berth.TaskID(fmt.Sprint("t", rapid.IntRange(0, 5).Draw(t, "task"), `.1"é`))
			e, there := want[id]
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0:
				if there {
					continue
				}
				e = host.Entry{Launch: fmt.Sprintf(`{"task":"x","n":%d}`, i), Boot: boot}
				if err := j.Claim(id, e.Launch); err != nil {
					t.Fatal(err)
				}
				want[id] = e
			case 1:
				if !there {
					continue
				}
				e.Step, e.Boot = rapid.SampledFrom([]runner.Step{runner.StepExec, runner.StepStarted, runner.StepDone}).Draw(t, "step"), boot
				if err := j.Mark(id, runner.Mark{Step: e.Step}); err != nil {
					t.Fatal(err)
				}
				want[id] = e
			case 2:
				if err := j.Remove(id); err != nil {
					t.Fatal(err)
				}
				delete(want, id)
			case 3:
				j.Close()
				if rapid.Bool().Draw(t, "torn") {
					tear(t, dir)
				}
				boot = fmt.Sprint("boot", rapid.IntRange(0, 2).Draw(t, "boot"))
				j = open(t, dir, boot)
			}
			if diff := cmp.Diff(want, j.Live()); diff != "" {
				t.Fatal(diff)
			}
		}
		j.Close()
	})
}

// tear adds half a line.
func tear(t *rapid.T, dir string) {
	f, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"task":"t0.1","removed":tr`); err != nil {
		t.Fatal(err)
	}
}

// TestCompact checks that a journal of many short tasks stays small.
func TestCompact(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, "b")
	defer j.Close()
	launch := `{"task":"x","command":"` + strings.Repeat("y", 10000) + `"}`
	if err := j.Claim("stays.1", launch); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		id := berth.TaskID(fmt.Sprintf("t%d.1", i))
		if err := j.Claim(id, launch); err != nil {
			t.Fatal(err)
		}
		if err := j.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "journal"))
	if err != nil || info.Size() > 6<<20 {
		t.Errorf("%d bytes (%v)", info.Size(), err)
	}
	if len(j.Live()) != 1 {
		t.Errorf("%d tasks", len(j.Live()))
	}
}

// TestMarkLine checks that the hand-made line of a mark says what was put into it, whatever that
// is.
func TestMarkLine(t *testing.T) {
	at := func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
	}
	rapid.Check(t, func(t *rapid.T) {
		want := runner.Mark{
			Step: rapid.SampledFrom([]runner.Step{runner.StepExec, runner.StepStarted, runner.StepExited, runner.StepDone}).Draw(t, "step"),
			PID:  rapid.IntRange(0, 1<<22).Draw(t, "pid"), StartTime: rapid.Uint64().Draw(t, "born"), Seq: rapid.IntRange(0, 1<<50).Draw(t, "seq"),
			Box: rapid.StringMatching("[0-9a-f]{0,64}").Draw(t, "box"),
			Times: berth.Waterfall{
				Submitted: at(t), Placed: at(t), Staging: at(t), Environment: at(t), Started: at(t), FirstOutput: at(t), Uploading: at(t), Ended: at(t),
			},
		}
		if rapid.Bool().Draw(t, "ended") {
			want.Exit = &berth.Exit{Code: rapid.Int().Draw(t, "code"), Reason: rapid.String().Draw(t, "reason"), OOM: rapid.Bool().Draw(t, "oom")}
		}
		id := berth.TaskID(rapid.String().Draw(t, "id"))
		b, err := host.AppendMark(nil, id, &want)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Task berth.TaskID
			Mark runner.Mark
		}
		if err := json.Unmarshal(b, &got); err != nil || strings.Count(string(b), "\n") != 1 {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := cmp.Diff(want, got.Mark); diff != "" || got.Task != id {
			t.Fatal(diff, got.Task)
		}
	})
}
