package advise

import (
	"fmt"
	"math"
	"slices"

	"github.com/berthml/berth"
)

// Run is what a job used.
type Run struct {
	Job, Compute string
	Size         berth.Size // of a node
	Low          bool
	PeakGB       float64 // memory of a node at most; 0 when it was not measured
	PeakCPUs     float64 // CPUs that were busy at most; 0 when that was not measured
	OOM          bool    // it ran out of memory
}

// tight is the share of a node's memory above which a run is close to its end.
const tight = 0.9

// Measure compares what a run used with what it had.
func Measure(r Run, m Catalogue) berth.MeasuredAdvice {
	a := berth.MeasuredAdvice{
		Job: r.Job, Compute: r.Compute, Size: r.Size.Name, AskedGB: r.Size.MemoryGB, PeakGB: round(r.PeakGB), VCPUs: r.Size.VCPUs, PeakCPUs: round(r.PeakCPUs),
	}
	need := headroom * r.PeakGB
	switch {
	case r.OOM:
		a.Verdict = "too small"
		say(&a, r, larger(r, m), fmt.Sprintf("it had %s and ran out of memory", gb(r.Size.MemoryGB)))
	case r.PeakGB == 0:
		a.Verdict, a.Advice = "unknown", "its use of memory was not measured: it ended too soon, or ran where memory is not measured"
	case r.PeakGB > tight*r.Size.MemoryGB:
		a.Verdict = "too small"
		say(&a, r, larger(r, m), fmt.Sprintf("asked %s, peak %s: there is hardly any room left", gb(r.Size.MemoryGB), gb(r.PeakGB)))
	default:
		better, ok := smaller(r, m, need)
		if !ok {
			a.Verdict = "fits"
			a.Advice = fmt.Sprintf("asked %s, peak %s: no smaller size has 150 %% of that, %s, and as many CPUs as it kept busy", gb(r.Size.MemoryGB), gb(r.PeakGB), gb(need))
			break
		}
		a.Verdict = "too large"
		say(&a, r, &better, fmt.Sprintf("asked %s, peak %s", gb(r.Size.MemoryGB), gb(r.PeakGB)))
	}
	return a
}

// say is the advice to take another size.
func say(a *berth.MeasuredAdvice, r Run, z *berth.Size, why string) {
	if z == nil {
		a.Advice = why + "; there is no larger size of its kind: use less memory, or more nodes"
		return
	}
	word := "next smaller"
	if a.Verdict == "too small" {
		word = "next larger"
	}
	a.Advice = fmt.Sprintf("%s: %s size is %s (%s, %s)", why, word, z.Name, gb(z.MemoryGB), cores(z.VCPUs))
	o := offer(*z, word)
	a.Better = &o
	now, then := rate(r.Size, r.Low), rate(*z, r.Low)
	if now != nil && then != nil && r.Size.Currency == z.Currency {
		saves := *now - *then
		a.Saves = &saves
		if saves > 0 {
			a.Advice += fmt.Sprintf(", which costs %.3g %s an hour less", saves, z.Currency)
		}
	}
}

func rate(s berth.Size, low bool) *float64 {
	if low {
		return s.LowPrice
	}
	return s.Price
}

// alike reports whether a size could stand in for another: as many GPUs of the kind, and no
// approval that the other did not need.
func alike(s, of berth.Size) bool {
	return s.GPUs == of.GPUs && s.GPU == of.GPU && (!s.Restricted || of.Restricted) && s.Name != of.Name
}

// smaller is the size that is enough for a run and costs least: of the same family if there is one,
// else of any.
func smaller(r Run, m Catalogue, need float64) (berth.Size, bool) {
	var family, others []berth.Size
	for _, s := range m.Sizes {
		if !alike(s, r.Size) || s.MemoryGB >= r.Size.MemoryGB || s.MemoryGB < need || float64(s.VCPUs) < math.Floor(r.PeakCPUs) || s.VCPUs < 1 {
			continue
		}
		if s.Family == r.Size.Family {
			family = append(family, s)
		} else if now, then := rate(r.Size, r.Low), rate(s, r.Low); now != nil && then != nil && *then < *now && s.Currency == r.Size.Currency {
			others = append(others, s)
		}
	}
	if len(family) == 0 {
		family = others
	}
	if len(family) == 0 {
		return berth.Size{}, false
	}
	return slices.MinFunc(family, func(a, b berth.Size) int { return cheaper(a, b, r.Low) }), true
}

// larger is the next size above that of a run: of its family, else of any.
func larger(r Run, m Catalogue) *berth.Size {
	var found *berth.Size
	for _, own := range []bool{true, false} {
		for i, s := range m.Sizes {
			if !alike(s, r.Size) || s.MemoryGB <= r.Size.MemoryGB || own && s.Family != r.Size.Family {
				continue
			}
			if found == nil || s.MemoryGB < found.MemoryGB || s.MemoryGB == found.MemoryGB && cheaper(s, *found, r.Low) < 0 {
				found = &m.Sizes[i]
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

func cores(n int) string {
	if n == 1 {
		return "1 vCPU"
	}
	return fmt.Sprintf("%d vCPUs", n)
}

func round(v float64) float64 { return math.Round(v*100) / 100 }
