// Package advise recommends where to run something and on what: pure rules over what somebody says
// of the work, the sizes there are, and what earlier runs used.
package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berthml/berth"
)

// Catalogue is the sizes to choose from.
type Catalogue struct {
	Sizes    []berth.Size // those of the location
	Location string
	NoGPU    bool // the server's machine, of which nodes are made, has none
}

// Figures of the rules.
const (
	headroom = 1.5 // of the RAM a model needs
	// Container instances are for less than this.
	containerRAM   = 48.0
	containerModel = 1.0
	instanceDisk   = 120.0 // GB, of an instance
)

// Check says what is wrong with what is asked.
func Check(n berth.AdviceNeeds) error {
	if n.Case != "" && !slices.Contains(berth.Cases, n.Case) {
		return berth.Errorf(berth.Invalid, "there is no case %q; the cases are %s", n.Case, strings.Join(berth.Cases, ", "))
	}
	for what, v := range map[string]float64{"data": n.DataGB, "model": n.ModelGB, "RAM": n.RAMGB} {
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return berth.Errorf(berth.Invalid, "%s cannot be %g GB", what, v)
		}
	}
	return nil
}

// Targets is the advice for a case, or for all of them.
func Targets(n berth.AdviceNeeds, m Catalogue) berth.Advice {
	n.MemoryGB, n.Why = memory(n)
	a := berth.Advice{Needs: n, Targets: []berth.TargetAdvice{}, Measured: []berth.MeasuredAdvice{}}
	for _, c := range berth.Cases {
		if n.Case != "" && n.Case != c {
			continue
		}
		found := rules[c](n, m)
		if n.GPU && m.NoGPU {
			found = elsewhere(found)
		}
		for i := range found {
			found[i].Case, found[i].Best = c, i == 0
			if found[i].Sizes == nil {
				found[i].Sizes = []berth.SizeOffer{}
			}
			if found[i].Notes == nil {
				found[i].Notes = []string{}
			}
			if found[i].Do == nil {
				found[i].Do = []string{}
			}
		}
		a.Targets = append(a.Targets, found...)
	}
	return a
}

// elsewhere is the advice where GPUs are wanted and the server's machine has none.
func elsewhere(found []berth.TargetAdvice) (out []berth.TargetAdvice) {
	for _, t := range found {
		switch {
		case berth.IsLocal(t.Target):
			continue
		case t.Here && t.Target != "kubernetes":
			t.Notes = append([]string{"this server's machine has no GPU, so nodes of such a size cannot start here: attach a machine, a Slurm site or a Kubernetes cluster that has some"}, t.Notes...)
			t.Do = []string{"berth compute attach -n NAME --ssh USER@HOST", "berth run --on NAME --gpu 1 -- python train.py"}
		}
		out = append(out, t)
	}
	return out
}

// memory is how much a machine should have: one and a half times what the model needs.
func memory(n berth.AdviceNeeds) (float64, string) {
	switch {
	case n.RAMGB > 0:
		return headroom * n.RAMGB, fmt.Sprintf("start with 150 %% of the RAM that is needed: %s for %s", gb(headroom*n.RAMGB), gb(n.RAMGB))
	case n.ModelGB > 0:
		return headroom * n.ModelGB, fmt.Sprintf("start with 150 %% of the RAM the model needs; that is taken to be its size, %s: measure it, and say it with --ram-gb", gb(n.ModelGB))
	case !n.GPU:
		return usual, fmt.Sprintf("%s are assumed, because nobody said what the work needs: say it with --ram-gb or --model-gb", gb(usual))
	}
	return 0, ""
}

// assumed reports whether nobody said what memory is needed.
func assumed(n berth.AdviceNeeds) bool { return n.RAMGB == 0 && n.ModelGB == 0 }

// rules are the cases: each gives its first choice first.
var rules = map[string]func(berth.AdviceNeeds, Catalogue) []berth.TargetAdvice{
	berth.CaseExperiment: experiment, berth.CaseProduction: production, berth.CaseMany: many, berth.CaseBatch: batch, berth.CaseRealtime: realtime,
}

func experiment(n berth.AdviceNeeds, m Catalogue) []berth.TargetAdvice {
	box := berth.TargetAdvice{
		Target: "instance", Here: true, Tier: "dedicated", Rule: "notebooks are best on a machine that is always there: a compute instance",
		Sizes: choose(n, m, berth.TypeInstance, false), Notes: []string{"an instance costs money as long as it runs: give it an idle time after which it stops"},
	}
	if n.DataGB >= instanceDisk {
		box.Notes = append(box.Notes, fmt.Sprintf("its disk has %s, less than the data: mount the data, or work on a part of it", gb(instanceDisk)))
	}
	box.Do = create("computeinstance", box.Sizes, "--set idle_time_before_shutdown_minutes=30")
	machine := berth.TargetAdvice{
		Target: berth.LocalCompute, Here: true, Rule: "with little data and for first tries the machine at hand will do, and costs nothing",
		Do: []string{"berth run -- python train.py"},
	}
	return []berth.TargetAdvice{box, machine}
}

func production(n berth.AdviceNeeds, m Catalogue) []berth.TargetAdvice {
	c := cluster(n, m, false, "scripts that train again and again belong on a compute cluster: it grows when they are submitted and shrinks to nothing when they have ended")
	c.Notes = append(c.Notes, "first scale up, then out: find the size that is fast enough for one, then add nodes")
	if n.GPU {
		c.Notes = append(c.Notes, "train deep models on GPUs, and test and register them on a CPU size, which costs less")
	}
	if n.DataGB >= instanceDisk {
		c.Notes = append(c.Notes, "large data is read where it lies: mount it, or spread the work over nodes with resources.instance_count")
	}
	c.Do = create("amlcompute", c.Sizes, "--min-instances 0 --max-instances 2")
	return []berth.TargetAdvice{c}
}

func many(n berth.AdviceNeeds, m Catalogue) []berth.TargetAdvice {
	c := cluster(n, m, true, "to train many models at once use a compute cluster: each node works on one by itself")
	c.Notes = append(c.Notes,
		"low priority costs a fraction; what is taken away starts again, so let each run write checkpoints to ./outputs",
		"size a node for one model, and let max_instances be how many run at once")
	c.Do = create("amlcompute", c.Sizes, "--tier low_priority --min-instances 0 --max-instances 8")
	return []berth.TargetAdvice{c}
}

func batch(n berth.AdviceNeeds, m Catalogue) []berth.TargetAdvice {
	c := cluster(n, m, false, "batch scoring runs on a compute cluster, with normal or low priority; it answers no requests")
	c.Notes = append(c.Notes, "first scale up, then out: one node that is fast enough, then as many as the data needs")
	if n.GPU {
		c.Notes = append(c.Notes, "scoring in batches on GPUs is for clusters only")
	}
	c.Do = create("amlcompute", c.Sizes, "--min-instances 0 --max-instances 4")
	return []berth.TargetAdvice{c}
}

// realtime is the choice between container instances, Kubernetes and the machine at hand.
func realtime(n berth.AdviceNeeds, m Catalogue) []berth.TargetAdvice {
	k := berth.TargetAdvice{
		Target: "kubernetes", Here: true, Rule: "production requests are served on Kubernetes: it is fast and scales with them", Sizes: choose(n, m, "", false),
		Notes: []string{"first scale up, then out: once one machine answers fast enough, add as many as there are requests at once"},
		Do:    []string{"berth deploy MODEL --on NAME"},
	}
	if n.GPU {
		k.Rule = "a web service that uses GPUs runs on Kubernetes only"
	}
	if n.ModelGB >= containerModel {
		k.Notes = append(k.Notes, "a cluster of a single node is good for developing and testing larger models")
	}
	c := berth.TargetAdvice{
		Target: "container instances", Rule: "for testing and low load a container instance will do: CPU only, less than 48 GB of RAM, models below 1 GB",
	}
	here := berth.TargetAdvice{
		Target: berth.LocalCompute, Here: true, Rule: "a web service on the machine at hand is for limited tests and for debugging",
		Do: []string{"berth deploy MODEL"},
	}
	switch {
	case n.GPU:
		return []berth.TargetAdvice{k, here}
	case n.MemoryGB < containerRAM && n.ModelGB < containerModel && n.ModelGB > 0:
		return []berth.TargetAdvice{c, k, here}
	case n.MemoryGB >= containerRAM || n.ModelGB >= containerModel:
		var why []string
		if n.MemoryGB >= containerRAM {
			why = append(why, fmt.Sprintf("%s of RAM are too much for container instances, which have less than %s", gb(n.MemoryGB), gb(containerRAM)))
		}
		if n.ModelGB >= containerModel {
			why = append(why, fmt.Sprintf("a model of %s is too large for container instances, which are for models below %s", gb(n.ModelGB), gb(containerModel)))
		}
		k.Notes = append(k.Notes, why...)
		return []berth.TargetAdvice{k, here}
	}
	return []berth.TargetAdvice{k, c, here}
}

func cluster(n berth.AdviceNeeds, m Catalogue, low bool, rule string) berth.TargetAdvice {
	tier := map[bool]string{true: "low_priority", false: "dedicated"}[low]
	return berth.TargetAdvice{Target: "cluster", Here: true, Tier: tier, Rule: rule, Sizes: choose(n, m, berth.TypeCluster, low)}
}

// create is the command that makes a compute of the first size offered.
func create(kind string, sizes []berth.SizeOffer, more string) []string {
	if len(sizes) == 0 {
		return nil
	}
	out := []string{fmt.Sprintf("berth compute create -n NAME --type %s --size %s %s", kind, sizes[0].Name, more)}
	if sizes[0].Restricted {
		out = append([]string{fmt.Sprintf("berth quota request --size %s --vcpus %d", sizes[0].Name, sizes[0].VCPUs)}, out...)
	}
	return out
}

// usual is how much memory a machine has where nobody says what is needed.
const usual = 14

// choose is the size that will do and costs least, the next larger of its family, and one of
// another: those that need no approval before the others, and sizes without a known price last. One
// that costs less than the first but needs an approval, or has less memory than was only assumed,
// is named too.
func choose(n berth.AdviceNeeds, m Catalogue, computeType string, low bool) []berth.SizeOffer {
	var fit, all []berth.Size
	for _, s := range m.Sizes {
		if (s.GPUs > 0) != n.GPU || !supports(s, computeType) || s.Isolated || low && !s.LowPriority {
			continue
		}
		all = append(all, s)
		if s.MemoryGB >= n.MemoryGB {
			fit = append(fit, s)
		}
	}
	slices.SortStableFunc(fit, func(a, b berth.Size) int { return cheaper(a, b, low) })
	if len(fit) == 0 {
		return nil
	}
	least := cheapest(fit, low)
	why := "the cheapest that will do"
	switch {
	case rate(fit[0], low) == nil:
		why = "the smallest that will do; its price is not known"
	case least.Name != fit[0].Name:
		why = "the cheapest that will do and needs no approval"
	}
	out := []berth.SizeOffer{offer(fit[0], why)}
	if least.Name != fit[0].Name && rate(least, low) != nil {
		out = append(out, offer(least, "the cheapest that will do"))
	}
	if small := cheapest(all, low); assumed(n) && small.MemoryGB < n.MemoryGB && rate(small, low) != nil {
		out = append(out, offer(small, "the cheapest there is, where "+gb(small.MemoryGB)+" are enough"))
	}
	var up *berth.Size
	for i, s := range fit {
		if s.Family == fit[0].Family && s.MemoryGB > fit[0].MemoryGB && (up == nil || s.MemoryGB < up.MemoryGB) {
			up = &fit[i]
		}
	}
	if up != nil {
		out = append(out, offer(*up, "the next larger: scale up before you scale out"))
	}
	if i := slices.IndexFunc(fit, func(s berth.Size) bool { return s.Family != fit[0].Family }); i >= 0 {
		out = append(out, offer(fit[i], "of another family, where the first cannot be had"))
	}
	return out
}

func supports(s berth.Size, computeType string) bool {
	return computeType == "" || slices.ContainsFunc(s.Computes, func(t string) bool { return strings.EqualFold(t, computeType) })
}

// cheaper orders sizes: no approval needed, a known price, that price, and then as little of
// everything as possible.
func cheaper(a, b berth.Size, low bool) int {
	x, y := rate(a, low), rate(b, low)
	return cmp.Or(before(!a.Restricted, !b.Restricted), before(x != nil, y != nil), compare(x, y),
		cmp.Compare(a.MemoryGB, b.MemoryGB), cmp.Compare(a.VCPUs, b.VCPUs), strings.Compare(a.Name, b.Name))
}

// cheapest is the size that costs least, whether it needs an approval or not.
func cheapest(sizes []berth.Size, low bool) berth.Size {
	return slices.MinFunc(sizes, func(a, b berth.Size) int {
		a.Restricted, b.Restricted = false, false
		return cheaper(a, b, low)
	})
}

func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func compare(a, b *float64) int {
	if a == nil || b == nil {
		return 0
	}
	return cmp.Compare(*a, *b)
}

func offer(s berth.Size, why string) berth.SizeOffer {
	if s.Restricted {
		why += "; it needs an approval"
	}
	return berth.SizeOffer{
		Name: s.Name, VCPUs: s.VCPUs, MemoryGB: s.MemoryGB, GPUs: s.GPUs, GPU: s.GPU, Price: s.Price, LowPrice: s.LowPrice, Currency: s.Currency,
		Restricted: s.Restricted, Why: why,
	}
}

// gb is an amount for people.
func gb(v float64) string {
	if v > 0 && v < 0.1 {
		return fmt.Sprintf("%.3g MB", v*1024)
	}
	return fmt.Sprintf("%.3g GB", v)
}
