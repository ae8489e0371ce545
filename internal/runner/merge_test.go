package runner

import (
	"testing"

	"github.com/berthml/berth"
)

// TestMergedReportSaysHowItWasStaged: a report that is overtaken by the next one of its task takes
// along how code and inputs came there.
func TestMergedReportSaysHowItWasStaged(t *testing.T) {
	var waiting []berth.Report
	waiting = add(waiting, berth.Report{Task: "a.1", Seq: 1, State: berth.TaskRunning, Staged: "code: 3 files"})
	waiting = add(waiting, berth.Report{Task: "a.1", Seq: 2, State: berth.TaskRunning})
	if len(waiting) != 1 || waiting[0].Seq != 2 || waiting[0].Staged != "code: 3 files" {
		t.Errorf("%+v", waiting)
	}
}
