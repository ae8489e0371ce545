package measure

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Bound is what a benchmark must hold: a limit on the value, the ratio or the CPU per operation.
type Bound struct {
	Of    string // "value", "ratio" or "cpu"
	Least bool   // the limit is the least that will do, not the most
	Limit float64
}

// String is for example "ratio >= 20".
func (b Bound) String() string {
	op := "<="
	if b.Least {
		op = ">="
	}
	return b.Of + " " + op + " " + strconv.FormatFloat(b.Limit, 'g', -1, 64)
}

// Row is one line of results: one benchmark against one peer, or against nobody.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// CPUPerOp is milliseconds of our own processes, without those of users' commands.
	CPUPerOp *float64 `json:"cpu_per_op,omitempty"`

	Peer        string   `json:"peer,omitempty"`
	PeerVersion string   `json:"peer_version,omitempty"`
	PeerValue   *float64 `json:"peer_value,omitempty"`
	// PeerCPUPerOp is milliseconds of everything the peer ran; it may include the commands.
	PeerCPUPerOp *float64 `json:"peer_cpu_per_op,omitempty"`
	// Ratio says how many times better than the peer, the median over rounds.
	Ratio      *float64    `json:"ratio,omitempty"`
	RatioRange *[2]float64 `json:"ratio_range,omitempty"`
	Rounds     int         `json:"rounds,omitempty"`

	Floor    string `json:"floor,omitempty"` // the bound
	Held     *bool  `json:"held,omitempty"`
	Physical string `json:"physical,omitempty"` // what the machine allows, measured in the same run
	Durable  string `json:"durable,omitempty"`
	Note     string `json:"note,omitempty"`

	Scored bool      `json:"scored"`
	Load   float64   `json:"load"`
	Other  *float64  `json:"other_cores,omitempty"` // busy cores that were neither ours nor the peer's
	At     time.Time `json:"at"`
	Run    string    `json:"run"`
}

// Against fills in the comparison with a peer, one value per round on both sides. The ratio is
// peer/ours for times and ours/peer for rates, so that more is better.
func (r *Row) Against(peer, version string, ours, theirs []float64, rate bool) {
	r.Peer, r.PeerVersion = peer, version
	v := Median(theirs)
	r.PeerValue = number(v)
	ratio := Ratios(theirs, ours)
	if rate {
		ratio = Ratios(ours, theirs)
	}
	if ratio.Rounds > 0 {
		r.Ratio, r.RatioRange, r.Rounds = number(ratio.Median), &[2]float64{Round(ratio.Min), Round(ratio.Max)}, ratio.Rounds
	}
}

// Absent says that the peer could not be run, and why.
func (r *Row) Absent(peer, why string) {
	r.Peer = peer
	why = strings.Join(strings.Fields(why), " ")
	r.Note = join(r.Note, "peer absent: "+why[:min(len(why), 200)])
}

// Judge holds the row against a bound. A figure that is missing does not hold.
func (r *Row) Judge(b Bound) {
	v := &r.Value
	switch b.Of {
	case "ratio":
		v = r.Ratio
	case "cpu":
		v = r.CPUPerOp
	}
	r.Floor = b.String()
	held := v != nil && !math.IsNaN(*v) && (b.Least && *v >= b.Limit || !b.Least && *v <= b.Limit)
	r.Held = &held
}

// Append writes a row at the end of the file of results.
func Append(path string, r Row) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("row %s: %w", r.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// Read reads all rows of a file of results.
func Read(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []Row
	for s := bufio.NewScanner(f); s.Scan(); {
		var r Row
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Round keeps four significant digits.
func Round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	v = Round(v)
	return &v
}

// Number is v for an optional field, rounded; nil when it is not a number.
func Number(v float64) *float64 { return number(v) }

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
