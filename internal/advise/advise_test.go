package advise_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/advise"
)

func price(v float64) *float64 { return &v }

func size(name, family string, vcpus int, memory float64, gpus int, cost float64) berth.Size {
	s := berth.Size{
		Name: name, Family: family, VCPUs: vcpus, MemoryGB: memory, GPUs: gpus, Currency: "USD", LowPriority: true, Computes: []string{berth.TypeCluster, berth.TypeInstance},
	}
	if cost > 0 {
		s.Price, s.LowPrice = price(cost), price(cost/5)
	}
	if gpus > 0 {
		s.GPU = "K80"
	}
	return s
}

func market() advise.Catalogue {
	alone := size("Alone", "F", 8, 64, 0, 0.01)
	alone.Isolated = true
	promo := size("NC6-promo", "P", 6, 56, 1, 0.1)
	promo.LowPriority, promo.LowPrice = false, nil
	barred := size("GPU-new", "N2", 6, 112, 1, 0.5)
	barred.Restricted = true
	return advise.Catalogue{Sizes: []berth.Size{
		size("D2", "D", 2, 7, 0, 0.15), size("D3", "D", 4, 14, 0, 0.3), size("D4", "D", 8, 28, 0, 0.6), size("D5", "D", 16, 56, 0, 1.2),
		size("E4", "E", 4, 32, 0, 0.25), size("X9", "X", 2, 60, 0, 0), alone, size("NC6", "N", 6, 56, 1, 0.9), size("NC12", "N", 12, 112, 2, 1.8), barred, promo,
	}}
}

// Each rule of the seeds, by what is asked and what comes first.
func TestTargets(t *testing.T) {
	for _, tt := range []struct {
		name   string
		needs  berth.AdviceNeeds
		target string
		size   string // the first that is offered
		rule   string // is said somewhere
	}{
		{"notebooks", berth.AdviceNeeds{Case: "experiment"}, "instance", "E4", "always there"},
		{"notebooks with more data than a disk", berth.AdviceNeeds{Case: "experiment", DataGB: 200}, "instance", "E4", "less than the data"},
		{"notebooks with a GPU", berth.AdviceNeeds{Case: "experiment", GPU: true}, "instance", "NC6-promo", "always there"},
		{"production", berth.AdviceNeeds{Case: "production", RAMGB: 20}, "cluster", "E4", "150 % of the RAM"},
		{"production of a large model", berth.AdviceNeeds{Case: "production", RAMGB: 30}, "cluster", "D5", "first scale up, then out"},
		{"deep models", berth.AdviceNeeds{Case: "production", GPU: true}, "cluster", "NC6-promo", "CPU size, which costs less"},
		{"more GPU memory", berth.AdviceNeeds{Case: "production", GPU: true, RAMGB: 60}, "cluster", "NC12", "CPU size, which costs less"},
		{"many models", berth.AdviceNeeds{Case: "many"}, "cluster", "E4", "each node works on one"},
		{"many models on what can be taken away", berth.AdviceNeeds{Case: "many", GPU: true}, "cluster", "NC6", "checkpoints"},
		{"batch", berth.AdviceNeeds{Case: "batch", ModelGB: 4}, "cluster", "D2", "taken to be its size"},
		{"batch on GPUs", berth.AdviceNeeds{Case: "batch", GPU: true}, "cluster", "NC6-promo", "clusters only"},
		{"a small web service", berth.AdviceNeeds{Case: "realtime", ModelGB: 0.5, RAMGB: 4}, "container instances", "", "models below 1 GB"},
		{"a web service that needs much", berth.AdviceNeeds{Case: "realtime", ModelGB: 0.5, RAMGB: 32}, "kubernetes", "D5", "48 GB of RAM are too much"},
		{"a web service just below", berth.AdviceNeeds{Case: "realtime", ModelGB: 0.99, RAMGB: 31.9}, "container instances", "", "less than 48 GB"},
		{"a large model", berth.AdviceNeeds{Case: "realtime", ModelGB: 1, RAMGB: 4}, "kubernetes", "D2", "single node"},
		{"a web service on GPUs", berth.AdviceNeeds{Case: "realtime", GPU: true}, "kubernetes", "NC6-promo", "GPUs runs on Kubernetes only"},
		{"a web service nobody describes", berth.AdviceNeeds{Case: "realtime"}, "kubernetes", "E4", "scales with them"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := advise.Targets(tt.needs, market())
			first := a.Targets[0]
			got := ""
			if len(first.Sizes) > 0 {
				got = first.Sizes[0].Name
			}
			said := a.Needs.Why
			for _, x := range a.Targets {
				said += "\n" + x.Rule + "\n" + strings.Join(x.Notes, "\n")
			}
			if first.Target != tt.target || got != tt.size || !first.Best || !strings.Contains(said, tt.rule) {
				t.Errorf("%s on %q, want %s on %q; said %s, want %q in it", first.Target, got, tt.target, tt.size, said, tt.rule)
			}
		})
	}
	for _, x := range advise.Targets(berth.AdviceNeeds{Case: "realtime"}, market()).Targets {
		if here := x.Target != "container instances"; x.Here != here || here != (len(x.Do) > 0) {
			t.Errorf("%s: here is %v, and to do is %q", x.Target, x.Here, x.Do)
		}
	}
	all := advise.Targets(berth.AdviceNeeds{}, market())
	var best []string
	for _, x := range all.Targets {
		if x.Best {
			best = append(best, x.Case)
		}
	}
	if d := cmp.Diff(berth.Cases, best); d != "" {
		t.Error(d)
	}
}

// What is offered has enough memory and is of the kind asked for; nothing that will do is better
// than the first.
func TestOffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := advise.Catalogue{}
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			s := size(rapid.StringMatching("[A-Z]{6}").Draw(t, "name"), rapid.SampledFrom([]string{"F", "G"}).Draw(t, "family"), rapid.IntRange(1, 64).Draw(t, "vcpus"),
				rapid.Float64Range(1, 400).Draw(t, "memory"), rapid.IntRange(0, 2).Draw(t, "gpus"), float64(rapid.IntRange(0, 9).Draw(t, "price")))
			s.Restricted = rapid.Bool().Draw(t, "restricted")
			m.Sizes = append(m.Sizes, s)
		}
		needs := berth.AdviceNeeds{Case: rapid.SampledFrom(berth.Cases[:4]).Draw(t, "case"), GPU: rapid.Bool().Draw(t, "gpu"), RAMGB: rapid.Float64Range(20, 200).Draw(t, "ram")}
		got := advise.Targets(needs, m).Targets[0].Sizes
		do := func(s berth.SizeOffer) bool { return s.MemoryGB >= 1.5*needs.RAMGB && (s.GPUs > 0) == needs.GPU }
		for _, o := range got {
			if !do(o) {
				t.Errorf("%+v for %+v", o, needs)
			}
		}
		for _, s := range m.Sizes {
			if !do(berth.SizeOffer{MemoryGB: s.MemoryGB, GPUs: s.GPUs}) {
				continue
			}
			if len(got) == 0 {
				t.Fatalf("%s would do, and nothing is offered", s.Name)
			}
			first := got[0]
			if first.Restricted && !s.Restricted || first.Restricted == s.Restricted && (first.Price == nil && s.Price != nil || first.Price != nil && s.Price != nil && *s.Price < *first.Price) {
				t.Errorf("%+v is offered before %+v", first, s)
			}
		}
	})
}

func TestMeasure(t *testing.T) {
	m := market()
	find := func(name string) berth.Size {
		for _, s := range m.Sizes {
			if s.Name == name {
				return s
			}
		}
		t.Fatalf("no size %s", name)
		return berth.Size{}
	}
	for _, tt := range []struct {
		name    string
		run     advise.Run
		verdict string
		better  string
		saves   float64
		advice  string
	}{
		{"much too large", advise.Run{Size: find("D5"), PeakGB: 9, PeakCPUs: 2.2}, "too large", "D3", 0.9, "asked 56 GB, peak 9 GB: next smaller size is D3 (14 GB, 4 vCPUs), which costs 0.9 USD an hour less"},
		{"it needs its CPUs", advise.Run{Size: find("D5"), PeakGB: 9, PeakCPUs: 7.9}, "too large", "D4", 0.6, "asked 56 GB, peak 9 GB: next smaller size is D4 (28 GB, 8 vCPUs), which costs 0.6 USD an hour less"},
		{"low priority", advise.Run{Size: find("D5"), Low: true, PeakGB: 9}, "too large", "D3", 0.18, "asked 56 GB, peak 9 GB: next smaller size is D3 (14 GB, 4 vCPUs), which costs 0.18 USD an hour less"},
		{"tiny", advise.Run{Size: find("D5"), PeakGB: 0.0625, PeakCPUs: 3}, "too large", "D3", 0.9, "asked 56 GB, peak 64 MB: next smaller size is D3 (14 GB, 4 vCPUs), which costs 0.9 USD an hour less"},
		{"right", advise.Run{Size: find("D3"), PeakGB: 8, PeakCPUs: 3}, "fits", "", 0, "asked 14 GB, peak 8 GB: no smaller size has 150 % of that, 12 GB, and as many CPUs as it kept busy"},
		{"nearly full", advise.Run{Size: find("D3"), PeakGB: 13.5}, "too small", "D4", -0.3, "asked 14 GB, peak 13.5 GB: there is hardly any room left: next larger size is D4 (28 GB, 8 vCPUs)"},
		{"out of memory", advise.Run{Size: find("D5"), PeakGB: 40, OOM: true}, "too small", "X9", 0, "it had 56 GB and ran out of memory: next larger size is X9 (60 GB, 2 vCPUs)"},
		{"out of memory at the end", advise.Run{Size: find("NC12"), OOM: true}, "too small", "", 0, "it had 112 GB and ran out of memory; there is no larger size of its kind: use less memory, or more nodes"},
		{"not measured", advise.Run{Size: find("D3")}, "unknown", "", 0, "its use of memory was not measured: it ended too soon, or ran where memory is not measured"},
		{"no approval is asked for", advise.Run{Size: find("NC6"), PeakGB: 52}, "too small", "", 0, "asked 56 GB, peak 52 GB: there is hardly any room left; there is no larger size of its kind: use less memory, or more nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := advise.Measure(tt.run, m)
			better, saves := "", 0.0
			if a.Better != nil {
				better = a.Better.Name
			}
			if a.Saves != nil {
				saves = *a.Saves
			}
			if a.Verdict != tt.verdict || better != tt.better || saves < tt.saves-1e-9 || saves > tt.saves+1e-9 || a.Advice != tt.advice {
				t.Errorf("%s, %q, saves %v: %s\nwant %s, %q, saves %v: %s", a.Verdict, better, saves, a.Advice, tt.verdict, tt.better, tt.saves, tt.advice)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	if err := advise.Check(berth.AdviceNeeds{Case: "batch", RAMGB: 3}); err != nil {
		t.Error(err)
	}
	for _, n := range []berth.AdviceNeeds{{Case: "lunch"}, {RAMGB: -1}, {DataGB: -1}} {
		if advise.Check(n) == nil {
			t.Errorf("%+v is accepted", n)
		}
	}
}

// TestNoGPU: where the server's machine has no GPU, nothing is recommended that cannot start there.
func TestNoGPU(t *testing.T) {
	m := market()
	m.NoGPU = true
	for _, c := range berth.Cases {
		for _, x := range advise.Targets(berth.AdviceNeeds{Case: c, GPU: true}, m).Targets {
			do := strings.Join(append(x.Do, x.Notes...), "\n")
			if berth.IsLocal(x.Target) || strings.Contains(do, "compute create") || x.Target != "kubernetes" && !strings.Contains(do, "berth compute attach") {
				t.Errorf("%s: %s: %s", c, x.Target, do)
			}
		}
		if list := advise.Targets(berth.AdviceNeeds{Case: c}, m).Targets; strings.Contains(strings.Join(list[0].Notes, "\n"), "attach") {
			t.Errorf("%s without a GPU: %q", c, list[0].Notes)
		}
	}
}
