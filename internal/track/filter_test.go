package track

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/track/points"
)

// TestFilter: one run, and what finds it.
func TestFilter(t *testing.T) {
	end := int64(20)
	r := &run{
		ID: "abc", Name: "My Run", Status: finished, Start: 10, End: &end, User: "u",
		Params: map[string]string{"lr": "0.1", "a b": "x", "a.b": "y"}, Tags: map[string]string{"mlflow.source.name": "train.py", "empty": ""},
		Datasets: []datasetInput{{Tags: []pair{{tagContext, "train"}}, Dataset: dataset{Name: "iris", Digest: "d1"}}},
	}
	latest := func(_, key string) (points.Point, bool) {
		v, ok := map[string]float64{"acc": 0.9, "neg": -2, "nan": math.NaN(), "inf": math.Inf(1), "val/loss": 0.5}[key]
		return points.Point{Value: v}, ok
	}
	for filter, want := range map[string]bool{
		"":                  true,
		"  ":                true,
		"metrics.acc > 0.5": true,
		"metric.acc >= 0.9 and params.lr = '0.1'":  true,
		"metrics.acc > 0.5 AND metrics.none > 0":   false,
		"metrics.acc = 9e-1":                       true,
		"metrics.neg<-1":                           true,
		"metrics.neg = -2":                         true,
		"metrics.`val/loss` < 1":                   true,
		`metrics."val/loss" < 1`:                   true,
		"metrics.none != 1":                        false,
		"metrics.nan > 0":                          false,
		"metrics.inf > 1e300":                      true,
		"params.lr != '0.2'":                       true,
		"params.none != 'x'":                       false,
		"params.none IS NULL":                      true,
		"params.lr is not null":                    true,
		"tags.empty = ''":                          true,
		"tags.empty IS NULL":                       false,
		`params."a b" = "x"`:                       true,
		"params.a.b = 'y'":                         true,
		"parameters.`a.b` LIKE 'Y'":                false,
		"param.`a.b` ILIKE 'Y'":                    true,
		"tags.`mlflow.source.name` LIKE '%.py'":    true,
		"tags.mlflow.source.name LIKE 'train____'": false,
		"tags.mlflow.source.name LIKE 'train___'":  true,
		"attributes.status = 'FINISHED'":           true,
		"status = 'finished'":                      false,
		"run.run_name ILIKE 'my%'":                 true,
		"`run name` = 'My Run'":                    true,
		"created = 10":                             true,
		"start_time > 10":                          false,
		"attr.end_time <= 20":                      true,
		"run_id IN ('abc', 'def')":                 true,
		"run_id NOT IN ('abc')":                    false,
		"run_id in (\"x\")":                        false,
		"dataset.name = 'iris'":                    true,
		"datasets.context IN ('test', 'train')":    true,
		"dataset.digest LIKE 'e%'":                 false,
		"user_id = 'u'":                            true,
	} {
		clauses, err := runGrammar.parse(filter)
		if err != nil {
			t.Errorf("%s: %v", filter, err)
		} else if got := (&search{ctx: t.Context(), clauses: clauses}).meets(func(k *clause) bool { return r.matches(k, latest) }); got != want {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
}

// TestBadFilter: what cannot be asked, and what is said.
func TestBadFilter(t *testing.T) {
	for filter, says := range map[string]string{
		"metrics.acc":                               "Invalid clause(s)",
		"metrics.acc >":                             "Invalid clause(s)",
		"metrics.acc > 'a'":                         "Expected numeric value type for metric. Found 'a'",
		"metrics.acc > 1 metrics.b > 2":             "Invalid clause(s) in filter string: 'metrics.b'",
		"metrics.acc > 1 OR metrics.b > 2":          "Invalid clause(s) in filter string: 'OR'",
		"metrics.acc LIKE 'x'":                      "Invalid comparator 'LIKE' not one of",
		"metrics.acc IS NULL":                       "IS NULL / IS NOT NULL is only supported for tags and params",
		"metrics.acc > 1; metrics.b > 1":            "multiple expression",
		"params.lr = 1":                             "Expected a quoted string value for parameter (e.g. 'my-value'). Got value 1",
		"params.lr = abc":                           "either not quoted or unidentified quote types used for string value abc",
		"params.lr > '1'":                           "Invalid comparator '>' not one of",
		"foo.bar = 'x'":                             "Invalid entity type 'foo'. Valid values are",
		"zzz = 'x'":                                 "Invalid attribute key 'zzz' specified",
		"dataset.zzz = 'x'":                         "Invalid dataset key 'zzz' specified",
		"status IN ('a')":                           "Only the 'run_id' attribute supports comparison with a list",
		"run_id IN ()":                              "non-empty list of string values",
		"run_id IN ('a'":                            "ill-formed list",
		"run_id IN (1)":                             "got different type in list",
		"start_time = 'x'":                          "Expected numeric value type for numeric attribute: start_time",
		"1 = 1":                                     "Invalid clause(s)",
		"(metrics.a > 1)":                           "Invalid clause(s)",
		"params.lr == 'x'":                          "Invalid comparator '=='",
		"AND metrics.a > 1":                         "Invalid clause(s)",
		"metrics.a > 1 AND":                         "Invalid clause(s)",
		"params.x = 'unterminated":                  "either not quoted",
		"params.x = '" + strings.Repeat("a", 2<<20): "longer than",
	} {
		_, err := runGrammar.parse(filter)
		f, _ := faultOf(err)
		if err == nil || f.Code != invalidParameter || !strings.Contains(f.Message, says) {
			t.Errorf("%.60s: %v, want %q", filter, err, says)
		}
	}
}

// TestOrder: NaN comes after numbers and what has none comes last, in both directions.
func TestOrder(t *testing.T) {
	values := map[string]float64{"a": 1, "b": math.NaN(), "c": math.Inf(1), "d": math.Inf(-1)}
	for _, c := range []struct{ order, want string }{{"metrics.m", "d a c b e"}, {"metrics.m DESC", "c a d b e"}, {"metrics.`m` asc", "d a c b e"}} {
		o, err := runGrammar.parseOrders([]string{c.order})
		if err != nil {
			t.Fatal(err)
		}
		got := sortBy([]string{"a", "b", "c", "d", "e"}, o, func(k string, _ order) rank {
			v, ok := values[k]
			return numberRank(v, ok)
		})
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.order, got, c.want)
		}
	}
	for _, bad := range []string{"", "a", "metrics.m sideways", "metrics.m desc please", "dataset.name", "'x'", "metrics.m,params.p"} {
		if _, err := runGrammar.parseOrders([]string{bad}); err == nil {
			t.Errorf("order by %q is taken", bad)
		}
	}
	if _, err := runGrammar.parseOrders([]string{"start_time", "attribute.start_time desc"}); err == nil || !strings.Contains(err.Error(), "duplicate fields") {
		t.Errorf("the same twice: %v", err)
	}
}

// FuzzFilter: no filter or order makes the parser crash, and every refusal is the user's fault.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		"metrics.acc > 0.5 AND params.\"a b\" = 'x'", "run_id IN ('a', 'b')", "tags.`x.y` IS NOT NULL", "a' \" ` ( ) , ; = != <", "metrics.m desc", "00000+0",
	} {
		f.Add(s)
	}
	r := &run{ID: "x"}
	none := func(string, string) (points.Point, bool) { return points.Point{}, false }
	f.Fuzz(func(t *testing.T, s string) {
		for _, g := range []*grammar{runGrammar, experimentGrammar, registeredGrammar, versionGrammar, loggedGrammar} {
			clauses, err := g.parse(s)
			if err != nil {
				if fault, ok := faultOf(err); !ok || statuses[fault.Code] >= 500 {
					t.Fatalf("%q: %v", s, err)
				}
			} else if g == runGrammar {
				(&search{ctx: t.Context(), clauses: clauses}).meets(func(k *clause) bool { return r.matches(k, none) })
			}
			if _, err := g.parseOrders([]string{s}); err != nil {
				if _, ok := faultOf(err); !ok {
					t.Fatalf("%q: %v", s, err)
				}
			}
		}
	})
}

// FuzzBatch: the quick reader of batches takes only what the careful one takes, and takes it for
// the same.
func FuzzBatch(f *testing.F) {
	f.Add(`{"run_id": "r", "metrics": [{"key": "m", "value": 1.5, "timestamp": 1, "step": -2}], "params": [{"key": "p", "value": "v"}]}`)
	f.Add(`{"run_id": "r", "metrics": [{"key": "\u00e9", "value": "NaN", "timestamp": 1}, {"key": "m", "value": -Infinity, "timestamp": 3}]}`)
	f.Add(`{"run_uuid": null, "runId": "r", "tags": [{"key": "t", "value": null}], "x": [[]]}`)
	f.Add(`{"runId": "r", "metrics": [{"key": "m", "value": 1, "timestamp": 1, "modelId": "o", "datasetName": "d", "datasetDigest": "e"}]}`)
	f.Add(`{"run_id": "r", "metrics": [{"key": "m", "value": 1, "timestamp": 1, "run_id": "r", "model_id": "o", "dataset_name": "d"}]}`)
	f.Add(`{"run_id": "r", "run_uuid": "s", "params": [{"key": "p", "value": "v"}]}`)
	f.Add(`{"run_id": "r", "tags": [{"key": "t", "value": "v"}], "tags": []}`)
	f.Fuzz(func(t *testing.T, s string) {
		quick, ok := parseBatch([]byte(s))
		if !ok {
			return
		}
		c := &call{}
		careful, err := slowBatch(c, []byte(s))
		if err != nil {
			t.Fatalf("%s: taken quickly, and refused carefully: %v", s, err)
		}
		if quick.run != careful.run || !slices.Equal(quick.params, careful.params) || !slices.Equal(quick.tags, careful.tags) || len(quick.metrics) != len(careful.metrics) {
			t.Fatalf("%s: %v and %v", s, quick, careful)
		}
		for i, m := range quick.metrics {
			o := careful.metrics[i]
			same := math.Float64bits(m.Point.Value) == math.Float64bits(o.Point.Value)
			m.Point.Value, o.Point.Value = 0, 0
			if !same || m != o {
				t.Fatalf("%s: %v and %v", s, quick.metrics[i], careful.metrics[i])
			}
		}
	})
}
