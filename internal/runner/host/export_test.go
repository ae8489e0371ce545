package host

import (
	"encoding/json"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// Journal is the journal, for tests.
type Journal struct{ j *journal }

// OpenJournal opens a journal.
func OpenJournal(dir, boot string) (*Journal, error) {
	j, err := openJournal(dir, boot)
	return &Journal{j}, err
}

// Claim records a task.
func (j *Journal) Claim(id berth.TaskID, launch string) error {
	return j.j.claim(id, json.RawMessage(launch), runner.Mark{})
}

// Mark records a step.
func (j *Journal) Mark(id berth.TaskID, m runner.Mark) error { return j.j.mark(id, m) }

// Remove forgets a task.
func (j *Journal) Remove(id berth.TaskID) error { return j.j.remove([]berth.TaskID{id}) }

// Close closes the file.
func (j *Journal) Close() { j.j.close() }

// Entry is what the journal knows of a task.
type Entry struct {
	Launch, Boot string
	Step         runner.Step
}

// Live is what the journal knows.
func (j *Journal) Live() map[berth.TaskID]Entry {
	out := map[berth.TaskID]Entry{}
	for id, e := range j.j.live {
		out[id] = Entry{string(e.launch), e.boot, e.mark.Step}
	}
	return out
}

// AppendMark is the line of a mark.
var AppendMark = appendMark
