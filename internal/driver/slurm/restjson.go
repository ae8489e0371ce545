package slurm

import (
	"encoding/json"
	"strconv"
)

// The answers of slurmrestd are not the same in all versions: what was a number became an object
// that may have one, and what was a word a list of words.

// amount is a number, or {"set": true, "infinite": false, "number": 5}. It is not set where it is
// null, infinite, or negative.
type amount struct {
	n   int64
	set bool
}

func (a *amount) UnmarshalJSON(b []byte) error {
	*a = amount{}
	var f float64
	if json.Unmarshal(b, &f) == nil {
		a.n, a.set = int64(f), string(b) != "null"
		return nil
	}
	var word string
	if json.Unmarshal(b, &word) == nil {
		n, err := strconv.ParseInt(word, 10, 64)
		a.n, a.set = n, err == nil
		return nil
	}
	var v struct {
		Set      bool    `json:"set"`
		Infinite bool    `json:"infinite"`
		Number   float64 `json:"number"`
	}
	if json.Unmarshal(b, &v) == nil && v.Set && !v.Infinite {
		a.n, a.set = int64(v.Number), true
	}
	return nil
}

// words is a word, or a list of words.
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		*w = nil
		if one != nil && *one != "" {
			*w = words{*one}
		}
		return nil
	}
	var all []string
	if json.Unmarshal(b, &all) == nil {
		*w = all
	}
	return nil
}

// first is the only or first word.
func (w words) first() string {
	if len(w) == 0 {
		return ""
	}
	return w[0]
}

// isFlag says whether a word follows the state of a job in a list. It counts more: where there is
// one word, it is that.
func isFlag(word string) bool {
	switch word {
	case "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING", "STAGE_OUT":
		return true
	}
	return false
}

// state is the state of a job as one word.
func (w words) state() string {
	for _, x := range w[min(1, len(w)):] {
		if isFlag(x) {
			return x
		}
	}
	return w.first()
}

// exitCode is how a job ended, as a shell would say: the status of wait, or an object.
type exitCode int

func (c *exitCode) UnmarshalJSON(b []byte) error {
	*c = 0
	var status float64
	if json.Unmarshal(b, &status) == nil {
		*c = exitCode(parseCode(strconv.Itoa(int(status))))
		return nil
	}
	var v struct {
		Code   amount `json:"return_code"`
		Signal struct {
			ID  amount `json:"id"`
			Old amount `json:"signal_id"`
		} `json:"signal"`
	}
	if json.Unmarshal(b, &v) != nil {
		return nil //nolint:nilerr // of yet another form: it is not known
	}
	*c = exitCode(v.Code.n)
	if sig := max(v.Signal.ID.n, v.Signal.Old.n); *c == 0 && sig > 0 {
		*c = exitCode(128 + sig)
	}
	return nil
}

// restJob is a job as slurmrestd lists it.
type restJob struct {
	ID       amount   `json:"job_id"`
	Array    amount   `json:"array_job_id"`
	Element  amount   `json:"array_task_id"`
	Name     string   `json:"name"`
	User     string   `json:"user_name"`
	State    words    `json:"job_state"`
	Why      string   `json:"state_reason"`
	Nodes    string   `json:"nodes"`
	Exit     exitCode `json:"exit_code"`
	Restarts amount   `json:"restart_cnt"`
}

func (j restJob) job() job {
	out := job{number: strconv.FormatInt(j.ID.n, 10), name: j.Name, state: j.State.state(), why: j.Why, node: j.Nodes, code: int(j.Exit), restarts: int(j.Restarts.n)}
	if j.Array.n > 0 && j.Element.set {
		out.number = strconv.FormatInt(j.Array.n, 10) + "_" + strconv.FormatInt(j.Element.n, 10)
	}
	return out
}

// restNode is a node as slurmrestd lists it.
type restNode struct {
	Name       string   `json:"name"`
	Address    string   `json:"address"`
	CPUs       amount   `json:"cpus"`
	Memory     amount   `json:"real_memory"` // MiB
	Gres       string   `json:"gres"`
	State      words    `json:"state"`
	Flags      words    `json:"state_flags"`
	Partitions []string `json:"partitions"`
}

// restPartition is a partition as slurmrestd lists it.
type restPartition struct {
	Name    string `json:"name"`
	Limit   amount `json:"max_time_limit"` // minutes, before v0.0.39
	Maximum struct {
		Time amount `json:"time"` // minutes
	} `json:"maximums"`
}
