package spec

import (
	"strconv"
	"strings"
)

// The metrics of signals, by the sort of feature. Of those of a drift the first counts.
var (
	driftThresholds = lazy[typ]{make: func() typ {
		return thresholdsOf(1,
			[]string{"jensen_shannon_distance", "normalized_wasserstein_distance", "population_stability_index", "two_sample_kolmogorov_smirnov_test"},
			[]string{"jensen_shannon_distance", "population_stability_index", "pearsons_chi_squared_test"})
	}}
	qualityMetrics = []string{"null_value_rate", "data_type_error_rate", "out_of_bounds_rate"}
)

// thresholdsOf are limits of metrics for numerical and categorical features; most says how many of
// each are sent, 0 is all.
func thresholdsOf(most int, numerical, categorical []string) typ {
	forms := obj(
		f("numerical", numbersOf(numerical)),
		f("categorical", numbersOf(categorical)),
		f("threshold", decimal, unsent),
		f("data_type", enum("numerical", "categorical"), unsent),
	)
	return typ{name: "a mapping", solid: true, readFunc: func(s *scope, v *value) any {
		m := s.mark()
		got, _ := asTree(forms.read(s, v))
		if s.failed(m) {
			return nil
		}
		out := []any{}
		add := func(group string, metrics []string) {
			count := 0
			set, _ := asTree(got[group])
			for _, name := range metrics {
				n, ok := set[name].(number)
				if !ok || most > 0 && (count == most || isZero(n)) {
					continue
				}
				count++
				one := limitOf(camel(name), n)
				one["dataType"] = pascal(group)
				out = append(out, one)
			}
		}
		add("numerical", numerical)
		add("categorical", categorical)
		return out
	}}
}

// numbersOf is a mapping of numbers with known names.
func numbersOf(names []string) typ {
	var ps parts
	for _, name := range names {
		ps = append(ps, f(name, decimal, to("="+name)))
	}
	return obj(ps)
}

func limitOf(metric string, n number) tree {
	return tree{"metric": metric, "threshold": tree{"value": n}}
}

func isZero(n number) bool {
	f, err := strconv.ParseFloat(string(n), 64)
	return err == nil && f == 0
}

// performance is what a model must reach, as the text of a property.
var performance = typ{name: "a mapping", solid: true, readFunc: func(s *scope, v *value) any {
	classes, errors := []string{"accuracy", "precision", "recall"}, []string{"mae", "mse", "rmse"}
	m := s.mark()
	got, _ := asTree(obj(f("classification", numbersOf(classes)), f("regression", numbersOf(errors))).read(s, v))
	if s.failed(m) {
		return nil
	}
	spelled := map[string]string{"mae": "MeanAbsoluteError", "mse": "MeanSquaredError", "rmse": "RootMeanSquaredError"}
	var all []string
	add := func(group string, metrics []string) {
		set, _ := asTree(got[group])
		for _, name := range metrics {
			if n, ok := set[name].(number); ok && !isZero(n) {
				word := spelled[name]
				if word == "" {
					word = pascal(name)
				}
				all = append(all, `{"modelType":"`+group+`","metric":"`+word+`","threshold":{"value":`+string(n)+`}}`)
			}
		}
	}
	add("classification", classes)
	add("regression", errors)
	if len(all) == 0 {
		return nil
	}
	return "[" + strings.Join(all, ", ") + "]"
}}

// aspects are how good an answer must be, and how many of them must be so.
var aspects = typ{name: "a mapping", solid: true, readFunc: func(s *scope, v *value) any {
	names := []string{"groundedness", "relevance", "coherence", "fluency", "similarity"}
	var ps parts
	for _, name := range names {
		ps = append(ps, f(name, obj(
			f("acceptable_"+name+"_score_per_instance", decimal, to("score"), def(number("3.0"))),
			f("aggregated_"+name+"_pass_rate", decimal, to("rate"), required),
		)))
	}
	got, _ := asTree(obj(ps).read(s, v))
	out := []any{}
	for _, name := range names {
		set, ok := asTree(got[name])
		if !ok || len(v.get(name).entries()) == 0 {
			continue
		}
		score, _ := set["score"].(number)
		rate, _ := set["rate"].(number)
		out = append(out, limitOf("Acceptable"+pascal(name)+"ScorePerInstance", score), limitOf("Aggregated"+pascal(name)+"PassRate", rate))
	}
	return out
}}

// tokenCounts are how many tokens may be used.
var tokenCounts = typ{name: "a mapping", solid: true, readFunc: func(s *scope, v *value) any {
	got, _ := asTree(obj(f("totaltoken", obj(
		f("total_token_count", decimal, to("total"), def(number("3.0"))),
		f("total_token_count_per_group", decimal, to("group"), required),
	))).read(s, v))
	set, ok := asTree(got["totaltoken"])
	if !ok {
		return []any{}
	}
	total, _ := set["total"].(number)
	group, _ := set["group"].(number)
	return []any{limitOf("TotalTokenCount", total), limitOf("TotalTokenCountPerGroup", group)}
}}
