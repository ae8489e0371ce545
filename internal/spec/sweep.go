package spec

import "strings"

var sweepJob = later(sweepJobParts)

func sweepJobParts() []part {
	return []part{
		is("jobType", "Sweep"),
		f("type", enum("sweep"), required, unsent),
		f("trial", trial, required),
		f("search_space", searchSpace, required),
		f("sampling_algorithm", samplingAlgorithm),
		f("objective", objective, required),
		f("early_termination", earlyTermination),
		f("limits", sweepLimits, required),
		f("inputs", inputs, def(tree{})),
		f("outputs", outputs, def(tree{})),
		f("resources", resources),
		f("queue_settings", queueSettings),
		f("services", mapOf(service), unsent),
		jobCommon,
		then(func(s *scope, v *value) {
			t, _ := asTree(s.out["trial"])
			s.in("trial").registryCode(v.get("trial").get("code"))
			if s.out["resources"] == nil && t["resources"] != nil {
				s.out["resources"] = clone(t["resources"])
			}
			for _, p := range v.get("search_space").entries() {
				if !ioName.MatchString(p.key) {
					s.in("search_space."+p.key).fail(p.at, "%q is not a valid parameter name; use letters, digits and '_'", p.key)
				}
			}
			if cmd := v.get("trial").get("command"); cmd != nil && t != nil {
				s.in("trial.command").checkExpressions(cmd, t.text("command"), map[string]*value{"inputs": v.get("inputs")})
				s.in("trial.command").unreplaced(cmd, t.text("command"), map[string]*value{"outputs": v.get("outputs"), "search_space": v.get("search_space")})
			}
		}),
	}
}

// entries are the pairs of a mapping, none for anything else.
func (v *value) entries() []pair {
	if v == nil || v.shape != mapping {
		return nil
	}
	return v.pairs
}

// trial is the command a sweep runs with each choice of parameters.
var trial = later(trialParts)

func trialParts() []part {
	return []part{
		f("command", text, required),
		f("environment", environment, to("environmentId"), required),
		f("code", code, to("codeId")),
		f("environment_variables", environmentVariables, def(tree{})),
		f("resources", resources),
		f("distribution", distribution),
		f("queue_settings", queueSettings, unsent),
		then(func(s *scope, v *value) {
			if cmd, ok := s.out["command"].(string); ok {
				s.out["command"] = doubleBrackets(cmd)
			}
		}),
	}
}

var objective = later(objectiveParts)

func objectiveParts() []part {
	return []part{
		f("goal", enum("minimize", "maximize"), required),
		f("primary_metric", text, required),
	}
}

// The limits of a sweep; a time-out below a minute is a minute.
var (
	sweepLimits = later(func() []part {
		return []part{
			is("jobLimitsType", "Sweep"),
			f("max_concurrent_trials", whole),
			f("max_total_trials", whole, required),
			f("timeout", floored(seconds)),
			f("trial_timeout", floored(seconds)),
		}
	})
	sweepNodeLimits = later(func() []part {
		return []part{
			f("max_concurrent_trials", whole),
			f("max_total_trials", whole, required),
			f("timeout", floored(whole)),
			f("trial_timeout", floored(whole)),
		}
	})
)

func floored(t typ) typ {
	read := t.read
	t.readFunc = func(s *scope, v *value) any {
		if n, ok := wholeOf(v); ok && n.IsInt64() && n.Int64() != 0 && n.Int64() < 60 {
			v = &value{shape: str, text: "60", doc: v.doc, line: v.line, col: v.col}
		}
		return read(s, v)
	}
	return t
}

var samplingAlgorithm = typ{name: "random, grid, bayesian or a mapping", readFunc: func(s *scope, v *value) any {
	if v.shape == str {
		word := looseEnum("random=Random", "grid=Grid", "bayesian=Bayesian").read(s, v)
		if word == nil {
			return nil
		}
		return tree{s.dest(&field{to: "samplingAlgorithmType"}): word}
	}
	return samplingMap.read(s, v)
}, showFunc: func(j any) any {
	m, ok := asTree(j)
	if !ok {
		return j
	}
	word := snake(m.text("samplingAlgorithmType"))
	if len(m) == 1 {
		return word
	}
	out := tree{"type": word}
	for k, v := range m {
		if k != "samplingAlgorithmType" {
			out[snake(k)] = v
		}
	}
	return out
}}

var samplingMap = byKey("type", func() map[string]typ {
	return map[string]typ{
		"random": obj(
			is("samplingAlgorithmType", "Random"),
			f("type", text, unsent),
			f("seed", whole),
			f("rule", looseEnum("random", "sobol")),
			f("logbase", oneOf(decimal, text)),
		),
		"grid":     obj(is("samplingAlgorithmType", "Grid"), f("type", text, unsent)),
		"bayesian": obj(is("samplingAlgorithmType", "Bayesian"), f("type", text, unsent)),
	}
})

var earlyTermination = byKey("type", func() map[string]typ {
	return map[string]typ{
		"bandit": policy("Bandit",
			f("slack_factor", decimal, nullable),
			f("slack_amount", decimal, nullable),
			then(func(s *scope, _ *value) {
				for _, name := range []string{"slackFactor", "slackAmount"} {
					key := s.dest(&field{to: name})
					if s.out[key] == nil && (s.yaml || !s.nodes) {
						s.out[key] = number("0")
					}
				}
			})),
		"median_stopping":      policy("MedianStopping", f("evaluation_interval", whole, nullable, def(number("1")))),
		"truncation_selection": policy("TruncationSelection", f("truncation_percentage", whole, required)),
	}
})

func policy(name string, own ...part) typ {
	ps := parts{
		is("policyType", name),
		f("type", text, unsent),
		f("evaluation_interval", whole, nullable, def(number("0"))),
		f("delay_evaluation", whole, nullable, def(number("0"))),
	}
	return obj(append(own, ps...)...) // what a policy says of itself comes first
}

// searchSpace names the parameters of a sweep and what they are drawn from.
var searchSpace = mapOf(draw)

// draw is a distribution. In a job it travels as [name, [arguments]], in a node of a pipeline as it
// is written.
var draw = typ{name: "a distribution", readFunc: func(s *scope, v *value) any {
	if v.shape != mapping {
		s.fail(v, "must be a mapping with a type, not %s", v.shape)
		return nil
	}
	name := strings.ToLower(v.textOf("type"))
	args, ok := distributions.get()[name]
	if !ok {
		s.in("type").failWith(or(v.get("type"), v), nearest(name, sortedWords(distributions.get())), "%s is not a distribution", describe(or(v.get("type"), v)))
		return nil
	}
	ps := parts{f("type", text)}
	for _, a := range args {
		t := oneNumber
		switch a {
		case "values":
			t = choices
		case "upper":
			t = whole
		}
		ps = append(ps, f(a, t, to("="+a), required))
	}
	got, _ := asTree(obj(ps).read(s, v))
	if s.nodes {
		got["type"] = name
		return got
	}
	list := make([]any, 0, len(args))
	for _, a := range args {
		list = append(list, got[a])
	}
	return []any{name, list}
}, showFunc: func(j any) any {
	two, ok := j.([]any)
	if !ok || len(two) != 2 {
		return j
	}
	name, _ := two[0].(string)
	args, _ := two[1].([]any)
	keys, ok := distributions.get()[name]
	if !ok || len(args) != len(keys) {
		return j
	}
	out := tree{"type": name}
	for i, key := range keys {
		out[key] = args[i]
	}
	return out
}}

var distributions = lazy[map[string][]string]{make: func() map[string][]string {
	return map[string][]string{
		"choice": {"values"}, "randint": {"upper"},
		"uniform": {"min_value", "max_value"}, "loguniform": {"min_value", "max_value"},
		"quniform": {"min_value", "max_value", "q"}, "qloguniform": {"min_value", "max_value", "q"},
		"normal": {"mu", "sigma"}, "lognormal": {"mu", "sigma"},
		"qnormal": {"mu", "sigma", "q"}, "qlognormal": {"mu", "sigma", "q"},
	}
}}

func or(v, w *value) *value {
	if v != nil {
		return v
	}
	return w
}

func sortedWords[T any](m map[string]T) []string {
	t := tree{}
	for k := range m {
		t[k] = nil
	}
	return sortedKeys(t)
}

// oneNumber keeps the kind of number that was written.
var oneNumber = typ{name: "a number", readFunc: func(s *scope, v *value) any {
	if v.shape == integer {
		return v.raw()
	}
	return readDecimal(s, v)
}}

// choices are the values of a choice: plain ones, or mappings of further distributions.
var choices = listOf(typ{name: "a value", readFunc: func(s *scope, v *value) any {
	if v.shape == boolean {
		s.fail(v, "must be a string or a number, not %s; put it in quotes", v.python())
		return nil
	}
	if v.shape != mapping {
		return readPrimitive(s, v)
	}
	return mapOf(typ{name: "a value", readFunc: func(s *scope, v *value) any {
		if v.shape == mapping {
			return s.draw(s, v)
		}
		return readPrimitive(s, v)
	}}).read(s, v)
}})
