package control_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// moves is every change of the states of jobs and nodes that a test of this package made.
var moves recorder

type recorder struct {
	mu   sync.Mutex
	seen map[string]bool // noun: from --> to
}

func (r *recorder) add(noun, from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[move(noun, from, to)] = true
}

// move is a change of state as ARCHITECTURE.md draws it: nothing is [*].
func move(noun, from, to string) string {
	if from == "" {
		from = "[*]"
	}
	if to == "" {
		to = "[*]"
	}
	return noun + ": " + from + " --> " + to
}

// noteJobs notes what became of the jobs of a fixture, by their events.
func (p *fixture) noteJobs() {
	err := p.db.View(context.Background(), func(tx *store.Tx) error {
		docs, err := tx.All(store.Query{Workspace: space.Key(), Kind: "jobs", NoBody: true})
		if err != nil {
			return err
		}
		for _, d := range docs {
			events, err := tx.Events(store.EventQuery{Workspace: space.Key(), Subject: "jobs/" + d.Name})
			if err != nil {
				return err
			}
			status := berth.NotStarted
			for _, e := range events {
				next := status
				switch e.Type {
				case berth.EventJobCreated:
					status, next = "", berth.NotStarted
				case berth.EventJobCancel:
					next = berth.CancelRequested
				case berth.EventJobStatus:
					var v struct{ Status berth.JobStatus }
					if err := json.Unmarshal(e.Data, &v); err != nil {
						return err
					}
					next = v.Status
				}
				if next != status {
					moves.add("job", string(status), string(next))
				}
				status = next
			}
			if status.Terminal() {
				moves.add("job", string(status), "")
			}
		}
		return nil
	})
	if err != nil {
		p.t.Error(err)
	}
}

// TestMain compares what the tests saw with what ARCHITECTURE.md draws: no state changes in a way
// that is not drawn, and, where all tests ran, nothing is drawn that does not happen.
func TestMain(m *testing.M) {
	code := m.Run()
	if wrong := compareMoves(); code == 0 && len(wrong) > 0 {
		fmt.Println("FAIL: the code and ARCHITECTURE.md differ\n" + strings.Join(wrong, "\n"))
		code = 1
	}
	os.Exit(code)
}

func compareMoves() (wrong []string) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		return []string{err.Error()}
	}
	drawn := map[string]bool{} // with whether it must be seen
	for _, noun := range []string{"job", "node"} {
		_, rest, _ := strings.Cut(string(page), "title: states of a "+noun+"\n")
		text, _, _ := strings.Cut(rest, "```")
		for line := range strings.Lines(text) {
			from, to, ok := strings.Cut(strings.TrimSpace(line), " --> ")
			if to, _, sometimes := strings.Cut(to, ":"); ok {
				drawn[noun+": "+from+" --> "+strings.TrimSpace(to)] = !sometimes
			}
		}
	}
	for s := range moves.seen {
		if _, ok := drawn[s]; !ok {
			wrong = append(wrong, "not drawn: "+s)
		}
	}
	run, skip := flag.Lookup("test.run").Value.String(), flag.Lookup("test.skip").Value.String()
	for s, always := range drawn {
		if always && !moves.seen[s] && run == "" && skip == "" && !testing.Short() {
			wrong = append(wrong, "drawn, and never seen: "+s)
		}
	}
	slices.Sort(wrong)
	return wrong
}
