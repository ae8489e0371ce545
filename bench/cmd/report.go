package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/berthml/berth/bench/measure"
)

const (
	begin = "<!-- results: written by bench/run.sh report -->"
	end   = "<!-- end of results -->"
)

// report writes the newest row of every benchmark and peer into a document, scored ones before
// others.
func report(from, into string) error {
	rows, err := measure.Read(from)
	if err != nil {
		return err
	}
	doc, err := os.ReadFile(into)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(doc), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for results", into)
	}
	return os.WriteFile(into, []byte(head+begin+"\n"+table(newest(rows))+end+tail), 0o644)
}

// newest keeps one row per benchmark and peer, in the order they first came: the last scored one,
// or the last of all.
func newest(rows []measure.Row) []measure.Row {
	at := map[string]int{}
	var keep []measure.Row
	for _, r := range rows {
		key := r.Name + "|" + r.Peer
		i, seen := at[key]
		switch {
		case !seen:
			at[key] = len(keep)
			keep = append(keep, r)
		case r.Scored || !keep[i].Scored:
			keep[i] = r
		}
	}
	return keep
}

func table(rows []measure.Row) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s\n\n", machine())
	s.WriteString("| benchmark | value | own CPU per operation | peer | its value | times better [range] | floor | held | load | remarks |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		cells := []string{r.Name, figure(r.Value) + " " + r.Unit, optional(r.CPUPerOp, " ms"), strings.TrimSpace(r.Peer + " " + r.PeerVersion), optional(r.PeerValue, " "+r.Unit), "", r.Floor, "", "", remarks(r)}
		if r.Ratio != nil {
			cells[5] = fmt.Sprintf("%s [%s-%s]", figure(*r.Ratio), figure(r.RatioRange[0]), figure(r.RatioRange[1]))
		}
		if r.Held != nil {
			cells[7] = map[bool]string{true: "yes", false: "**no**"}[*r.Held]
		}
		cells[8] = fmt.Sprintf("%.2f", r.Load)
		if !r.Scored {
			cells[8] += ", not scored"
		}
		s.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	return s.String()
}

func remarks(r measure.Row) string {
	var parts []string
	for _, p := range []struct{ what, text string }{{"physical floor ", r.Physical}, {"durable: ", r.Durable}, {"", r.Note}} {
		if p.text != "" {
			parts = append(parts, p.what+p.text)
		}
	}
	return strings.Join(parts, "; ")
}

func optional(v *float64, unit string) string {
	if v == nil {
		return ""
	}
	return figure(*v) + unit
}

// figure is v with three digits and no exponent.
func figure(v float64) string {
	digits := 0
	if a := math.Abs(v); a > 0 && a < 100 {
		digits = max(0, 2-int(math.Floor(math.Log10(a))))
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// machine is what the figures were taken on.
func machine() string {
	field := func(file, key string) string {
		b, _ := os.ReadFile(file)
		for l := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == key {
				return strings.TrimSpace(v)
			}
		}
		return "unknown"
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	memory, _ := strconv.Atoi(strings.Fields(field("/proc/meminfo", "MemTotal") + " ")[0])
	return fmt.Sprintf("Machine: %d x %s, %d GiB, Linux %s, %s.", runtime.NumCPU(), field("/proc/cpuinfo", "model name"), memory>>20,
		strings.TrimSpace(string(kernel)), runtime.Version())
}
