package points

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestKill kills a process that appends from eight goroutines, again and again in the same
// directory: every point it was told is kept is there once, and no segment or journal is in the way
// of the next.
func TestKill(t *testing.T) {
	if dir := os.Getenv("BERTH_POINTS_WRITER"); dir != "" {
		write(t, dir, os.Getenv("BERTH_POINTS_ROUND"))
		return
	}
	rounds := 8
	if n, err := strconv.Atoi(os.Getenv("BERTH_KILLS")); err == nil {
		rounds = n
	}
	dir := t.TempDir()
	kept := map[string]map[int64]bool{} // owner → steps
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), "BERTH_POINTS_WRITER="+dir, "BERTH_POINTS_ROUND="+strconv.Itoa(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acks := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			owner, n, ok := strings.Cut(lines.Text(), " ")
			step, err := strconv.ParseInt(n, 10, 64)
			if !ok || err != nil {
				t.Fatalf("the writer says %q", lines.Text())
			}
			if kept[owner] == nil {
				kept[owner] = map[int64]bool{}
			}
			kept[owner][step] = true
			if acks++; acks == 20+37*round%300 {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if acks == 0 {
			t.Fatal("the writer wrote nothing")
		}
	}
	s := open(t, dir, Options{})
	for owner, steps := range kept {
		seen := map[int64]int{}
		for _, p := range history(t, s, owner, "m") {
			seen[p.Step]++
		}
		for step := range steps {
			if seen[step] != 1 {
				t.Errorf("%s: step %d is there %d times", owner, step, seen[step])
			}
		}
	}
}

// write appends until it is killed, and says what was kept.
func write(t *testing.T, dir, round string) {
	s, err := Open(dir, Options{JournalSize: 2 << 10})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for w := range 8 {
		go func() {
			owner := fmt.Sprintf("w%d-%s", w, round)
			for i := int64(0); ; i++ {
				e := []Entry{{owner, "m", Point{i, i, float64(i)}}}
				err := s.Append(e)
				if err == nil {
					err = s.Append(e) // as a client that lost the answer does
				}
				if err != nil {
					done <- err
					return
				}
				fmt.Printf("%s %d\n", owner, i)
			}
		}()
	}
	t.Fatal(<-done)
}
