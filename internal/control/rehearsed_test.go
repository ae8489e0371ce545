package control_test

import "testing"

var (
	// rehearsed makes stores run every update twice, and undo the first.
	rehearsed bool
	// failing makes the first try at every cycle fail as late as it can.
	failing bool
)

// again are tests that are run again under worse conditions.
var again = map[string]func(*testing.T){
	"TwoIsolated": TestTwoIsolated, "Reservations": TestReservations, "ZeroToFourToZero": TestZeroToFourToZero, "Gang": TestGang,
	"Evict": TestEvict, "ResizeInterrupted": TestResizeInterrupted, "ProviderFails": TestProviderFails, "DeleteCluster": TestDeleteCluster,
	"Serverless": TestServerless, "NodeKilled": TestNodeKilled, "Backfill": TestBackfill, "EndedWhileAway": TestEndedWhileAway,
	"SlotsAndOrder": TestSlotsAndOrder, "Cancel": TestCancel, "TargetFaults": TestTargetFaults, "Restart": TestRestart,
	"BadLaunch": TestBadLaunch, "PortsRunOut": TestPortsRunOut, "NamedOutput": TestNamedOutput, "PipelineNested": TestPipelineNested,
	"PipelineFails": TestPipelineFails, "PipelineBudget": TestPipelineBudget, "ReasonsFollowQuotas": TestReasonsFollowQuotas,
}

// TestRehearsed: when every commit has to be tried twice, the first try leaves the state as it was,
// and what becomes of jobs is the same.
func TestRehearsed(t *testing.T) {
	rehearsed = true
	defer func() { rehearsed = false }()
	for name, test := range again {
		t.Run(name, test)
	}
}

// TestCommitFails: when the first try at every cycle fails, that leaves the state as it was, and
// what becomes of jobs is the same.
func TestCommitFails(t *testing.T) {
	failing = true
	defer func() { failing = false }()
	for name, test := range again {
		t.Run(name, test)
	}
}
