package slurm

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// StartGang is [driver.Ganger.StartGang]. A gang is one job of several nodes. Its script becomes
// the leader, which has srun start a runner on each node.
func (d *Driver) StartGang(ctx context.Context, all []berth.Launch) ([]driver.Handle, error) {
	fresh := &record{Task: all[0].Task, Grace: all[0].Grace}
	for _, l := range all[1:] {
		fresh.Others = append(fresh.Others, l.Task)
	}
	if err := d.start(ctx, fresh, d.alone(func() (work, error) { return d.gangWork(all) })); err != nil {
		return nil, err
	}
	hs := make([]driver.Handle, len(all))
	for i, l := range all {
		hs[i] = handle(l.Task)
	}
	return hs, nil
}

// tasks are those of a record, by rank.
func (r *record) tasks() []berth.TaskID { return append([]berth.TaskID{r.Task}, r.Others...) }

// keep lets a record be found by its tasks. The mutex is held.
func (d *Driver) keep(r *record) {
	for _, id := range r.tasks() {
		d.records[id] = r
	}
}

// forget is the opposite of keep. The mutex is held.
func (d *Driver) forget(r *record) {
	for _, id := range r.tasks() {
		delete(d.records, id)
	}
}

// gangScript is the batch script of a gang. Each of its nodes fetches the program as that of a
// single task does. The launches are in this script only: the leader sends them to the others.
func gangScript(hash string, all []berth.Launch, home string) ([]byte, error) {
	fill := filler(hash, all[0].Home, home)
	member := fill.Replace(strings.Replace(scriptText, failWord, memberFail, 1) + dirText + memberTail)
	b, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	out := fill.Replace(scriptText+dirText) + heredoc("gang.json", b) + heredoc("member.sh", []byte(member)) + `exec "$program" _task --dir "$dir" --lead` + "\n"
	if len(out) > maxScript {
		return nil, berth.Errorf(berth.Invalid, "the job has %d bytes of settings, and a batch script of Slurm can carry %d; use fewer nodes", len(out), maxScript)
	}
	return []byte(out), nil
}

// failWord is how the script of a task fails, and memberFail how that of a member tells its leader.
const (
	failWord   = `fail() { [ -z "$dir" ] || rm -rf "$dir"; exit "$1"; }`
	memberFail = `fail() { [ -z "$dir" ] || rm -rf "$dir"; echo "berth-member $SLURM_PROCID $1 lost"; exit 0; }`
)

// memberTail is not replaced by the program: it tells the leader when that is killed.
const memberTail = `"$program" _task --dir "$dir" --member || fail $?
`
