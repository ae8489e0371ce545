package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestKillLeavesNothing kills a server that is busy with a statement. The process that runs it
// looks for the server only between statements.
func TestKillLeavesNothing(t *testing.T) {
	s, err := Start()
	Need(t, err)
	defer s.Stop()
	c, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := c.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		_, err := c.Exec(t.Context(), "SELECT count(*) FROM generate_series(1, 1000000000) a WHERE a % 7 = 3")
		done <- err
	}()
	<-begun
	for state, _ := status(pid); state != "R"; state, _ = status(pid) {
		if state == "" {
			t.Fatal("its process ended by itself")
		}
	}
	s.Kill()
	if !ended(pid) {
		t.Error("a process of the server goes on")
	}
	if err := <-done; err == nil {
		t.Error("the statement came to its end")
	}
}
