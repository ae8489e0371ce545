package control_test

import "testing"

// rehearsed makes stores run every update twice, and undo the first.
var rehearsed bool

// TestRehearsed runs tests again as if every commit had to be tried twice: what a move changed in the loop's picture of the world the
// first time must not be taken for true.
func TestRehearsed(t *testing.T) {
	rehearsed = true
	defer func() { rehearsed = false }()
	for name, test := range map[string]func(*testing.T){
		"TwoIsolated": TestTwoIsolated, "Reservations": TestReservations, "ZeroToFourToZero": TestZeroToFourToZero, "Gang": TestGang,
		"Evict": TestEvict, "ResizeInterrupted": TestResizeInterrupted, "ProviderFails": TestProviderFails, "DeleteCluster": TestDeleteCluster,
		"Serverless": TestServerless, "NodeKilled": TestNodeKilled, "Backfill": TestBackfill, "EndedWhileAway": TestEndedWhileAway,
		"SlotsAndOrder": TestSlotsAndOrder, "Cancel": TestCancel, "TargetFaults": TestTargetFaults, "Restart": TestRestart,
		"BadLaunch": TestBadLaunch, "PortsRunOut": TestPortsRunOut, "NamedOutput": TestNamedOutput, "PipelineNested": TestPipelineNested,
		"PipelineFails": TestPipelineFails, "PipelineBudget": TestPipelineBudget, "ReasonsFollowQuotas": TestReasonsFollowQuotas,
	} {
		t.Run(name, test)
	}
}
