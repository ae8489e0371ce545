package devbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// moves is every change of an instance's state that a test of this package made, as ARCHITECTURE.md
// draws it.
var moves struct {
	mu   sync.Mutex
	seen map[string]bool
}

// noteInstances notes what became of the instances of a fixture, by their events.
func (p *fixture) noteInstances() {
	moves.mu.Lock()
	defer moves.mu.Unlock()
	if moves.seen == nil {
		moves.seen = map[string]bool{}
	}
	err := p.db.View(context.Background(), func(tx *store.Tx) error {
		events, err := tx.Events(store.EventQuery{Workspace: space.Key()})
		states := map[string]string{}
		for _, e := range events {
			var v struct{ State string }
			if e.Type != berth.EventCompute || json.Unmarshal(e.Data, &v) != nil || v.State == "" {
				continue
			}
			if from := states[e.Subject]; from != "" && from != v.State {
				moves.seen[from+" --> "+v.State] = true
			}
			states[e.Subject] = v.State
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
}

// TestMain compares what the tests saw with what ARCHITECTURE.md draws.
func TestMain(m *testing.M) {
	code := m.Run()
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(page), "title: states of an instance\n")
	text, _, _ := strings.Cut(rest, "```")
	drawn := map[string]bool{}
	for line := range strings.Lines(text) {
		edge, _, _ := strings.Cut(line, ":")
		drawn[strings.TrimSpace(edge)] = true
	}
	var wrong []string
	for s := range moves.seen {
		if !drawn[s] {
			wrong = append(wrong, "not drawn: "+s)
		}
	}
	if slices.Sort(wrong); code == 0 && len(wrong) > 0 {
		fmt.Println("FAIL: the code and ARCHITECTURE.md differ\n" + strings.Join(wrong, "\n"))
		code = 1
	}
	os.Exit(code)
}
