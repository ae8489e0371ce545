package sizes_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

// offered is Azure's table of supported series: name, whether it requires approval, category. Each
// is for clusters and instances.
var offered = []struct {
	series     string
	restricted bool
	category   string
}{
	{"D", false, "General purpose"},
	{"DDSv4", false, "General purpose"},
	{"Dv2", false, "General purpose"},
	{"Dv3", false, "General purpose"},
	{"DSv2", false, "General purpose"},
	{"DSv3", false, "General purpose"},
	{"EAv4", false, "Memory optimized"},
	{"Ev3", false, "Memory optimized"},
	{"FSv2", false, "Compute optimized"},
	{"H", false, "High performance compute"},
	{"HB", true, "High performance compute"},
	{"HBv2", true, "High performance compute"},
	{"HCS", true, "High performance compute"},
	{"M", true, "Memory optimized"},
	{"NC", false, "GPU"},
	{"NC Promo", false, "GPU"},
	{"NCsv2", true, "GPU"},
	{"NCsv3", true, "GPU"},
	{"NDs", true, "GPU"},
	{"NDv2", true, "GPU"},
	{"NV", false, "GPU"},
	{"NVv3", true, "GPU"},
}

func TestEverySeriesOfTheTable(t *testing.T) {
	for _, o := range offered {
		n, instance := 0, false
		for _, s := range sizes.Builtin().All() {
			if s.Series != o.series {
				continue
			}
			n++
			if s.Restricted != o.restricted || s.Category != o.category {
				t.Errorf("%s of %s: restricted %v, category %q; want %v, %q", s.Name, s.Series, s.Restricted, s.Category, o.restricted, o.category)
			}
			if !sizes.Supports(s, "amlcompute") {
				t.Errorf("%s is not for clusters", s.Name)
			}
			instance = instance || sizes.Supports(s, berth.TypeInstance)
		}
		if n == 0 || !instance {
			t.Errorf("series %s has %d sizes, for instances: %v", o.series, n, instance)
		}
	}
}

func TestSizesMakeSense(t *testing.T) {
	seen := map[string]bool{}
	family := map[string]berth.Size{}
	for _, s := range sizes.Builtin().All() {
		if k := strings.ToLower(s.Name); seen[k] {
			t.Errorf("%s is there twice", s.Name)
		} else {
			seen[k] = true
		}
		if !strings.HasPrefix(s.Name, "Standard_") || s.VCPUs < 1 || s.MemoryGB < 1 || s.Family == "" || s.Category == "" || s.Series == "" {
			t.Errorf("%+v", s)
		}
		if (s.GPUs > 0) != (s.Category == "GPU") || (s.GPUs > 0) != (s.GPU != "") {
			t.Errorf("%s has %d GPUs of model %q in category %s", s.Name, s.GPUs, s.GPU, s.Category)
		}
		for _, p := range []*float64{s.Price, s.LowPrice} {
			if p != nil && (*p <= 0 || s.Currency != "USD") {
				t.Errorf("%s costs %g %s", s.Name, *p, s.Currency)
			}
		}
		if s.Price != nil && s.LowPrice != nil && *s.LowPrice > *s.Price {
			t.Errorf("%s costs more with low priority: %g, %g", s.Name, *s.LowPrice, *s.Price)
		}
		if s.LowPrice != nil && !s.LowPriority {
			t.Errorf("%s has a price for what cannot be had", s.Name)
		}
		if f, ok := family[s.Family]; ok && (f.Restricted != s.Restricted || f.Series != s.Series) {
			t.Errorf("family %s is of two minds: %s, %s", s.Family, f.Name, s.Name)
		}
		family[s.Family] = s
	}
}

func TestIsolated(t *testing.T) {
	var got []string
	for _, s := range sizes.Builtin().All() {
		if s.Isolated {
			got = append(got, s.Name)
		}
	}
	slices.Sort(got)
	want := []string{"Standard_F72s_v2", "Standard_M128ms", "Standard_NC24rs_v3", "Standard_NC24s_v3"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if s, _ := sizes.Find("Standard_NC24rs_v3"); !s.RDMA {
		t.Error("Standard_NC24rs_v3 has RDMA")
	}
}

// TestKnownSize is the one size whose every field is in the protocol's own example.
func TestKnownSize(t *testing.T) {
	got, ok := sizes.Find("STANDARD_ds3_V2")
	price, low := 0.293, 0.05
	want := berth.Size{
		Name: "Standard_DS3_v2", Family: "standardDSv2Family", Series: "DSv2", VCPUs: 4, MemoryGB: 14, PremiumIO: true, OSDiskMB: 1047552,
		TempDiskMB: 28672, LowPriority: true, Category: "General purpose", Computes: []string{"AmlCompute", "ComputeInstance"},
		Price: &price, LowPrice: &low, Currency: "USD",
	}
	if d := cmp.Diff(want, got); !ok || d != "" {
		t.Error(d)
	}
	for name, instance := range map[string]bool{"Standard_D1_v2": false, "Standard_FX4mds": false, "Standard_DS1_v2": true} {
		if s, ok := sizes.Find(name); !ok || sizes.Supports(s, berth.TypeInstance) != instance {
			t.Errorf("%s for instances: %v", name, !instance)
		}
	}
	if s, _ := sizes.Find("Standard_NC6_Promo"); s.LowPriority || s.Name == "" {
		t.Errorf("promotional sizes are not had with low priority: %+v", s)
	}
}

func TestNearest(t *testing.T) {
	for text, want := range map[string]string{
		"Standard_DS3v2": "Standard_DS3_v2", "ds3_v2": "Standard_DS3_v2", "Standard_D3s_v2": "Standard_D3_v2", "NC24rsv3": "Standard_NC24rs_v3",
		"A100": "Standard_NC24ads_A100_v4",
	} {
		if got := sizes.Builtin().Nearest(text); !slices.Contains(got, want) || len(got) > 3 {
			t.Errorf("%s: %v, want %s among three", text, got, want)
		}
	}
	if got := sizes.Builtin().Nearest("m5.24xlarge.metal.of.another.cloud"); got != nil {
		t.Errorf("nothing is like it, got %v", got)
	}
}

func TestNeighbours(t *testing.T) {
	for _, s := range sizes.Builtin().All() {
		up, ok := sizes.Builtin().Larger(s.Name)
		if !ok {
			continue
		}
		if up.Family != s.Family || up.MemoryGB < s.MemoryGB {
			t.Errorf("larger than %s: %s", s.Name, up.Name)
		}
		if down, ok := sizes.Builtin().Smaller(up.Name); !ok || down.MemoryGB != s.MemoryGB || down.VCPUs != s.VCPUs {
			t.Errorf("smaller than %s, which is larger than %s: %s", up.Name, s.Name, down.Name)
		}
	}
	if s, ok := sizes.Builtin().Smaller("Standard_DS4_v2"); !ok || s.Name != "Standard_DS12_v2" { // as much memory, fewer cores
		t.Errorf("smaller than Standard_DS4_v2: %v", s.Name)
	}
	if _, ok := sizes.Builtin().Larger("Standard_NC24rs_v3"); ok {
		t.Error("nothing of its family is larger")
	}
}

func doc(name, body string) *store.Doc {
	return &store.Doc{Kind: sizes.Kind, Name: name, Body: json.RawMessage(body)}
}

func TestOverlay(t *testing.T) {
	c, err := sizes.Load([]*store.Doc{
		doc("standard_ds3_v2", `{"price":1.5,"lowPrice":null,"currency":"EUR","locations":["local","cellar"]}`),
		doc("big-box", `{"vCPUs":64,"memoryGB":512,"gpus":2,"gpu":"NVIDIA L40S","price":2,"currency":"EUR","absent":["attic"]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := c.Find("Standard_DS3_v2")
	if s.Name != "Standard_DS3_v2" || *s.Price != 1.5 || s.LowPrice != nil || s.Currency != "EUR" || s.Own || s.VCPUs != 4 {
		t.Errorf("%+v", s)
	}
	for place, want := range map[string]bool{"local": true, "Cellar": true, "eastus": false} {
		if sizes.Available(s, place) != want {
			t.Errorf("in %s: %v", place, !want)
		}
	}
	own, ok := c.Find("BIG-BOX")
	if !ok || own.Name != "big-box" || !own.Own || own.Family != sizes.OwnFamily || len(own.Computes) != 2 || !sizes.Available(own, "local") || sizes.Available(own, "attic") {
		t.Errorf("%+v", own)
	}
	if n := len(c.All()); n != len(sizes.Builtin().All())+1 {
		t.Errorf("%d sizes", n)
	}
	if b, _ := sizes.Find("Standard_DS3_v2"); *b.Price != 0.293 || len(b.Locations) != 0 {
		t.Error("the catalogue itself was changed")
	}
}

func TestOverlayRefuses(t *testing.T) {
	for body, says := range map[string]string{
		`{"memoryGB":4}`: "vCPUs must be at least 1, not 0",
		`{"vCPUs":2}`:    "memoryGB must be positive, not 0",
		`{"vCPUs":2,"memoryGB":4,"price":-1,"currency":"EUR"}`:       "price must not be negative",
		`{"vCPUs":2,"memoryGB":4,"price":1,"lowPrice":2}`:            "more than price",
		`{"vCPUs":2,"memoryGB":4,"price":1}`:                         "has a price but no currency",
		`{"vCPUs":2,"memoryGB":4,"vcpu":1}`:                          "unknown field",
		`{"vCPUs":2,"memoryGB":4,"supportedComputeTypes":["Spark"]}`: "Spark",
		`{"vCPUs":2,"memoryGB":4,"supportedComputeTypes":[]}`:        "empty",
		`{"vCPUs":2,"memoryGB":4,"gpus":-1}`:                         "gpus must not be negative",
	} {
		if _, err := sizes.Load([]*store.Doc{doc("mine", body)}); err == nil || !strings.Contains(err.Error(), says) || berth.CodeOf(err) != berth.Invalid {
			t.Errorf("%s: %v, want %q", body, err, says)
		}
	}
	// A machine somebody named before Azure had that name stays theirs.
	c, err := sizes.Load([]*store.Doc{doc("Standard_DS3_v2", `{"vCPUs":400,"memoryGB":8}`)})
	if s, _ := c.Find("Standard_DS3_v2"); err != nil || s.VCPUs != 400 || !s.Own {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := sizes.Load([]*store.Doc{doc("Standard_DS3_v2", `{"vCPUs":400}`)}); err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("Azure's sizes are what they are: %v", err)
	}
}

func TestFamilies(t *testing.T) {
	for _, name := range []string{"standard ncasv3_t4 family", "StandardNCASv3T4Family", "Standard_NCASv3_T4_Family"} {
		if f, ok := must(t).FindFamily(name); !ok || f != "Standard NCASv3_T4 Family" {
			t.Errorf("%s: %q", name, f)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(sizes.Builtin().All()).Draw(t, "size").Family
		other := strings.Map(func(r rune) rune {
			if (r == ' ' || r == '_') && rapid.Bool().Draw(t, "drop") {
				return -1
			}
			return r
		}, strings.ToUpper(name))
		if !sizes.SameFamily(name, other) || sizes.SameFamily(name, other+"x") || sizes.SameFamily(other+"x", name) || sizes.SameFamily(name, "") {
			t.Errorf("%q, %q", name, other)
		}
		a, b := rapid.StringMatching(`[aAbB _]{0,6}`).Draw(t, "a"), rapid.StringMatching(`[aAbB _]{0,6}`).Draw(t, "b")
		if sizes.SameFamily(a, b) != (sizes.FamilyKey(a) == sizes.FamilyKey(b)) {
			t.Errorf("%q, %q", a, b)
		}
	})
}

func must(t *testing.T) sizes.Catalogue {
	t.Helper()
	c, err := sizes.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
