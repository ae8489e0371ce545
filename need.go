package berth

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// Properties of a job that say what its command needs. They are ours: Azure has none like them.
const (
	CPUsProperty   = "berth.cpus"   // CPUs it may use
	MemoryProperty = "berth.memory" // memory it may use, such as 4g
	GPUsProperty   = "berth.gpus"   // GPUs it needs; 0 hides those that are there
	// StdinProperty is where standard input comes from: "pipe", or "terminal" for a terminal on
	// which the whole command runs. Without it, standard input is empty.
	StdinProperty = "berth.stdin"
	// TerminalProperty is the size of that terminal, ROWSxCOLUMNS.
	TerminalProperty = "berth.terminal"
)

// Needs is what the command of a job needs, as far as its properties say so.
type Needs struct {
	CPUs   float64 // 0: not said
	Memory int64   // bytes; 0: not said
	GPUs   int     // -1: not said
	Stdin  *Stdin
}

// Stdin says where the standard input of a command comes from.
type Stdin struct {
	Terminal      bool `json:"terminal,omitempty"` // the command runs on a terminal
	Rows, Columns int
}

// NeedsOf reads the properties of a job's document.
func NeedsOf(props json.RawMessage) (Needs, error) {
	n := Needs{GPUs: -1}
	if !bytes.Contains(props, []byte(`"berth.`)) {
		return n, nil
	}
	var v struct {
		Properties map[string]Scalar `json:"properties"`
	}
	if err := json.Unmarshal(props, &v); err != nil {
		return n, Errorf(Invalid, "the job's properties: %w", err)
	}
	wrong := func(key, want string) error {
		return Errorf(Invalid, "properties.%s is %q; it must be %s", key, v.Properties[key], want)
	}
	var err error
	if text := string(v.Properties[CPUsProperty]); text != "" {
		if n.CPUs, err = strconv.ParseFloat(text, 64); err != nil || !(n.CPUs >= 0.01 && n.CPUs <= 1e6) {
			return n, wrong(CPUsProperty, "a number of CPUs, such as 2 or 0.5")
		}
	}
	if text := string(v.Properties[MemoryProperty]); text != "" {
		if n.Memory, err = ParseBytes(text); err != nil || n.Memory < 4<<20 {
			return n, wrong(MemoryProperty, "an amount of memory of at least 4m, such as 512m or 4g")
		}
	}
	if text := string(v.Properties[GPUsProperty]); text != "" {
		if n.GPUs, err = strconv.Atoi(text); err != nil || n.GPUs < 0 || n.GPUs > 1000 {
			return n, wrong(GPUsProperty, "a number of GPUs")
		}
	}
	switch text := string(v.Properties[StdinProperty]); text {
	case "":
	case "pipe", "terminal":
		n.Stdin = &Stdin{Terminal: text == "terminal"}
		rows, columns, _ := strings.Cut(string(v.Properties[TerminalProperty]), "x")
		n.Stdin.Rows, n.Stdin.Columns = size16(rows), size16(columns)
	default:
		return n, wrong(StdinProperty, "pipe or terminal")
	}
	return n, nil
}

// size16 is a number of rows or columns, 0 when the text is none.
func size16(text string) int {
	n, err := strconv.ParseUint(text, 10, 15)
	if err != nil {
		return 0
	}
	return int(n)
}

// ParseBytes reads an amount of memory: bytes, or a number with k, m, g or t, which are powers of
// 1024; an i, a b or both may follow.
func ParseBytes(text string) (int64, error) {
	low := strings.ToLower(strings.TrimSpace(text))
	digits := strings.TrimRight(low, "bikmgt ")
	unit := strings.TrimSpace(low[len(digits):])
	factor, ok := map[string]float64{
		"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	}[strings.TrimSuffix(strings.TrimSuffix(unit, "b"), "i")]
	f, err := strconv.ParseFloat(digits, 64)
	if f *= factor; err != nil || !ok || !(f >= 0 && f < math.MaxInt64) {
		return 0, Errorf(Invalid, "%q must be an amount of memory, such as 512m or 4g", text)
	}
	return int64(f), nil
}

// TaskGPUs is Task.GPUs of the tasks of the job.
func (n Needs) TaskGPUs() int {
	switch n.GPUs {
	case -1:
		return 0
	case 0:
		return NoGPUs
	}
	return n.GPUs
}

// Limit adds what is needed to a launch that has what its node gives, and no more than that.
func (n Needs) Limit(l *Launch) {
	if n.CPUs > 0 && (l.CPUs == 0 || n.CPUs < l.CPUs) {
		l.CPUs = n.CPUs
	}
	if n.Memory > 0 && (l.Memory == 0 || n.Memory < l.Memory) {
		l.Memory = n.Memory
	}
	switch {
	case n.GPUs == 0:
		l.GPUs, l.NoGPU = nil, true
	case n.GPUs > 0:
		l.GPUCount = n.GPUs
		l.GPUs = l.GPUs[:min(len(l.GPUs), n.GPUs)]
	}
	l.Stdin = n.Stdin
}
