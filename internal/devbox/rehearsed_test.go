package devbox_test

import "testing"

// rehearsed makes stores run every update twice, and undo the first.
var rehearsed bool

// TestRehearsed runs tests again as if every commit had to be tried twice.
func TestRehearsed(t *testing.T) {
	rehearsed = true
	defer func() { rehearsed = false }()
	for name, test := range map[string]func(*testing.T){
		"Life": TestLife, "Killed": TestKilled, "SetupFails": TestSetupFails, "NodeCannotBeHad": TestNodeCannotBeHad, "Idle": TestIdle,
		"Schedule": TestSchedule, "Jobs": TestJobs, "Drain": TestDrain, "Users": TestUsers,
	} {
		t.Run(name, test)
	}
}
