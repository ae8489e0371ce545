package host

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner"
)

// The journal is a file of JSON lines to which every change is appended before it is acted upon. A
// write that reached the kernel survives the death of any process, so nothing is synced: what a
// power cut takes, it takes together with the tasks themselves.
type journal struct {
	path string
	boot string // of the machine, now

	mu   sync.Mutex
	f    *os.File
	size int64
	live map[berth.TaskID]*entry
	dead int64 // bytes of lines about removed tasks

	crashed bool         // the worker before this one died
	panics  int          // how many ended by themselves, one soon after the other
	trying  berth.TaskID // what is taken up by itself, see trial.go

	room int64 // up to here the disk is ours, whoever fills it
}

// entry is what the journal knows of a task.
type entry struct {
	launch json.RawMessage
	mark   runner.Mark
	boot   string // the boot the mark is from
	deaths int    // of workers that were preparing it
	bytes  int64
}

// line is one line: a boot of the machine, or something about a task. Whether the server has taken
// the report of a task's end is not kept: after a crash it is reported again.
type line struct {
	Boot    string          `json:"boot,omitempty"`
	Task    berth.TaskID    `json:"task,omitempty"`
	Launch  json.RawMessage `json:"launch,omitempty"`
	Mark    *runner.Mark    `json:"mark,omitempty"`
	Removed bool            `json:"removed,omitempty"`
	Deaths  int             `json:"deaths,omitempty"`
	Passed  bool            `json:"passed,omitempty"` // its trial: the deaths were not its own
	Ended   bool            `json:"ended,omitempty"`  // the worker ended, and did not die
	Panics  int             `json:"panics,omitempty"`
	Well    bool            `json:"well,omitempty"` // the worker lives
	Trying  *berth.TaskID   `json:"trying,omitempty"`
}

// compactAt is how many dead bytes make a rewrite worth while.
const compactAt = 4 << 20

// openJournal reads the journal, rewrites it without what is dead, and is ready for more.
func openJournal(dir, boot string) (*journal, error) {
	j := &journal{path: filepath.Join(dir, "journal"), boot: boot, live: map[berth.TaskID]*entry{}}
	if err := j.load(); err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	if err := j.rewrite(); err != nil {
		return nil, fmt.Errorf("rewriting the journal: %w", err)
	}
	return j, nil
}

func (j *journal) load() error {
	f, err := os.Open(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	boot := ""
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		b, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil // a last line without its end was cut off by a crash, and nothing followed from it
		}
		if err != nil {
			return err
		}
		var l line
		if json.Unmarshal(b, &l) != nil {
			continue // the scar of an earlier crash
		}
		j.crashed = !l.Ended
		if l.Boot != "" {
			boot = l.Boot
		}
		switch {
		case l.Panics > 0:
			j.panics = l.Panics
		case l.Well:
			j.panics, j.trying = 0, ""
		case l.Trying != nil:
			j.trying = *l.Trying
		}
		j.apply(&l, boot, int64(len(b)))
	}
}

// apply brings live up to date with a line.
func (j *journal) apply(l *line, boot string, n int64) {
	if l.Task == "" {
		return
	}
	e := j.live[l.Task]
	if e == nil {
		if l.Launch == nil {
			j.dead += n
			return
		}
		e = &entry{launch: l.Launch}
		j.live[l.Task] = e
	}
	e.bytes += n
	e.boot = boot
	if l.Passed {
		e.deaths = 0
	}
	if l.Mark != nil {
		if e.mark.Step != l.Mark.Step { // it got on
			e.deaths = 0
		}
		e.mark = *l.Mark
	}
	e.deaths = max(e.deaths, l.Deaths)
	if l.Removed {
		j.dead += e.bytes
		delete(j.live, l.Task)
	}
}

// rewrite replaces the file with one that holds what is alive.
func (j *journal) rewrite() error {
	tmp := j.path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 256<<10)
	enc := json.NewEncoder(w)
	was := ""
	for id, e := range j.live {
		if e.boot != "" && e.boot != was {
			was = e.boot
			_ = enc.Encode(line{Boot: was})
		}
		l := line{Task: id, Launch: e.launch, Deaths: e.deaths}
		if e.mark.Step != "" {
			l.Mark = &e.mark
		}
		_ = enc.Encode(l)
	}
	_ = enc.Encode(line{Boot: j.boot})
	if j.panics > 0 {
		_ = enc.Encode(line{Panics: j.panics})
	}
	if j.trying != "" {
		_ = enc.Encode(line{Trying: &j.trying})
	}
	if err := w.Flush(); err != nil { // bufio keeps the first error
		f.Close()
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		err = f.Sync() // the one file that everything hangs on must not be an empty name after a power cut
	}
	if err == nil {
		err = os.Rename(tmp, j.path)
	}
	if err != nil {
		f.Close()
		return err
	}
	if j.f != nil {
		j.f.Close()
	}
	j.f, j.size, j.dead, j.room = f, size, 0, 0
	return nil
}

// ahead is how much of the disk the journal has for itself. How a command ended must be kept also
// when the disk is full: often what the command left is what fills it, and that can go only
// afterwards.
const ahead = 256 << 10

// reserve sees to it that there is room for ends. Its error is that of a full disk.
func (j *journal) reserve() error {
	if j.size+ahead/2 <= j.room {
		return nil
	}
	err := allocate(j.f, j.size, ahead)
	switch {
	case berth.IsDiskFull(err):
		return fmt.Errorf("writing the journal: %w", err)
	case err != nil:
		j.room = math.MaxInt64 // a file system that cannot: nothing is promised
	default:
		j.room = j.size + ahead
	}
	return nil
}

// entries is a copy of what is known.
func (j *journal) entries() map[berth.TaskID]entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make(map[berth.TaskID]entry, len(j.live))
	for id, e := range j.live {
		all[id] = *e
	}
	return all
}

// claim records a new task and how far it is from the beginning. launch is JSON on one line.
func (j *journal) claim(id berth.TaskID, launch json.RawMessage, m runner.Mark) error {
	name, err := json.Marshal(id)
	if err != nil {
		return err
	}
	b := make([]byte, 0, len(launch)+len(name)+64)
	b = append(b, `{"task":`...)
	b = append(b, name...)
	b = append(b, `,"launch":`...)
	b = append(b, launch...)
	if m.Step != "" {
		b = append(b, `,"mark":{"step":"`...)
		b = append(b, m.Step...)
		b = append(b, `"}`...)
	}
	b = append(b, "}\n"...)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.reserve(); err != nil { // the room there is left is for those that began
		return err
	}
	if err := j.write(b); err != nil {
		return err
	}
	j.apply(&line{Task: id, Launch: launch, Mark: &m}, j.boot, int64(len(b)))
	return nil
}

// mark records how far a task has come.
func (j *journal) mark(id berth.TaskID, m runner.Mark) error {
	b, err := appendMark(nil, id, &m)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.write(b); err != nil {
		return err
	}
	j.apply(&line{Task: id, Mark: &m}, j.boot, int64(len(b)))
	return nil
}

// died records how many workers have died preparing a task.
func (j *journal) died(id berth.TaskID, deaths int) error {
	return j.note(line{Task: id, Deaths: deaths})
}

// passed notes that a task passed its trial.
func (j *journal) passed(id berth.TaskID) error { return j.note(line{Task: id, Passed: true}) }

func (j *journal) note(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.write(append(b, '\n')); err != nil {
		return err
	}
	j.apply(&l, j.boot, int64(len(b)+1))
	return nil
}

// appendMark adds the line of a mark: what json.Marshal of the line would, at a fraction of its
// cost.
func appendMark(b []byte, id berth.TaskID, m *runner.Mark) ([]byte, error) {
	name, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	b = slices.Grow(b, 512)
	b = append(append(append(b, `{"task":`...), name...), `,"mark":{"step":"`...)
	b = append(append(b, m.Step...), '"')
	if m.PID != 0 {
		b = strconv.AppendInt(append(b, `,"pid":`...), int64(m.PID), 10)
	}
	if m.Box != "" {
		b = strconv.AppendQuoteToASCII(append(b, `,"box":`...), m.Box) // hexadecimal digits
	}
	if m.StartTime != 0 {
		b = strconv.AppendUint(append(b, `,"born":`...), m.StartTime, 10)
	}
	if m.Seq != 0 {
		b = strconv.AppendInt(append(b, `,"seq":`...), int64(m.Seq), 10)
	}
	b = append(b, `,"times":{`...)
	first := true
	for _, t := range []struct {
		name string
		at   time.Time
	}{
		{"submitted", m.Times.Submitted},
		{"placed", m.Times.Placed},
		{"staging", m.Times.Staging},
		{"environment", m.Times.Environment},
		{"started", m.Times.Started},
		{"firstOutput", m.Times.FirstOutput},
		{"uploading", m.Times.Uploading},
		{"ended", m.Times.Ended},
	} {
		if t.at.IsZero() {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), t.name...), `":"`...)
		b = append(t.at.AppendFormat(b, time.RFC3339Nano), '"')
	}
	b = append(b, '}')
	if m.Exit != nil {
		exit, err := json.Marshal(m.Exit)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"exit":`...), exit...)
	}
	return append(b, "}}\n"...), nil
}

// remove forgets tasks.
func (j *journal) remove(ids []berth.TaskID) error {
	if len(ids) == 0 {
		return nil
	}
	var b []byte
	lines := make([]line, len(ids))
	sizes := make([]int64, len(ids))
	for i, id := range ids {
		lines[i] = line{Task: id, Removed: true}
		l, err := json.Marshal(lines[i])
		if err != nil {
			return err
		}
		b = append(append(b, l...), '\n')
		sizes[i] = int64(len(l) + 1)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.write(b); err != nil {
		return err
	}
	for i := range lines {
		j.apply(&lines[i], j.boot, sizes[i])
	}
	if j.dead > compactAt && j.dead > j.size/2 {
		return j.rewrite()
	}
	return nil
}

func (j *journal) write(b []byte) error {
	_ = j.reserve()
	n, err := j.f.Write(b)
	j.size += int64(n)
	if err == nil {
		return nil
	}
	if n > 0 { // what follows must begin on a line of its own
		_, _ = j.f.Write([]byte{'\n'})
	}
	return fmt.Errorf("writing the journal: %w", err)
}

// close notes that the worker ended by itself.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.write([]byte(`{"ended":true}` + "\n")) // else the next one takes it for dead
	j.f.Close()
}
