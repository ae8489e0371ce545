package quota_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/quota"
	"github.com/berthml/berth/internal/sizes"
	"github.com/berthml/berth/internal/store"
)

var now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

const (
	lab   = "/subscriptions/s/resourcegroups/g/providers/microsoft.machinelearningservices/workspaces/lab"
	other = "/subscriptions/s/resourcegroups/g/providers/microsoft.machinelearningservices/workspaces/other"
	dsv2  = "standardDSv2Family"
	ncv3  = "standardNCSv3Family" // restricted
)

func limit(s quota.Scope, vcpus int, expires time.Time) quota.Limit {
	return quota.Limit{Scope: s, Grants: []quota.Grant{{VCPUs: vcpus, Expires: expires, By: "root"}}}
}

func genScope(t *rapid.T, name string) quota.Scope {
	return quota.Scope{
		Workspace: rapid.SampledFrom([]string{"", lab, other}).Draw(t, name+" workspace"),
		Family:    rapid.SampledFrom([]string{"", dsv2, ncv3}).Draw(t, name+" family"),
		User:      rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, name+" user"),
		Low:       rapid.Bool().Draw(t, name+" low"),
	}
}

func genUse(t *rapid.T, name string) quota.Use {
	return quota.Use{
		Workspace: rapid.SampledFrom([]string{lab, other}).Draw(t, name+" workspace"),
		Family:    rapid.SampledFrom([]string{dsv2, ncv3}).Draw(t, name+" family"),
		User:      rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, name+" user"),
		Low:       rapid.Bool().Draw(t, name+" low"),
		VCPUs:     rapid.IntRange(0, 40).Draw(t, name+" vcpus"),
	}
}

func genLimits(t *rapid.T) quota.Limits {
	l := quota.Limits{Default: rapid.SampledFrom([]int{0, 24}).Draw(t, "default"), Restricted: map[string]bool{sizes.FamilyKey(ncv3): true}}
	for range rapid.IntRange(0, 5).Draw(t, "limits") {
		s := genScope(t, "limit")
		if _, ok := l.Of(s); ok {
			continue
		}
		lim := quota.Limit{Scope: s}
		for range rapid.IntRange(1, 3).Draw(t, "grants") {
			g := quota.Grant{VCPUs: rapid.IntRange(0, 100).Draw(t, "granted")}
			if rapid.Bool().Draw(t, "ends") {
				g.Expires = now.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "hours")) * time.Hour)
			}
			lim.Grants = append(lim.Grants, g)
		}
		l.All = append(l.All, lim)
	}
	return l
}

// held is what of use counts against a scope, told independently of the package.
func held(use []quota.Use, s quota.Scope) int {
	n := 0
	for _, u := range use {
		if u.Low == s.Low && (s.Workspace == "" || s.Workspace == u.Workspace) && (s.Family == "" || s.Family == u.Family) && (s.User == "" || s.User == u.User) {
			n += u.VCPUs
		}
	}
	return n
}

func applies(s quota.Scope, u quota.Use) bool {
	return held([]quota.Use{{Workspace: u.Workspace, Family: u.Family, User: u.User, Low: u.Low, VCPUs: 1}}, s) == 1
}

// TestRoomIsExact: taking the room breaks no limit that was not broken before, and one more vCPU
// would break one.
func TestRoomIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := genLimits(t)
		use := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) quota.Use { return genUse(t, "use") }), 0, 8).Draw(t, "use")
		ask := genUse(t, "ask")
		room, unlimited, why := l.Room(use, ask, now)
		if room < 0 || (why == "") != unlimited {
			t.Fatalf("room %d, unlimited %v, why %q", room, unlimited, why)
		}
		type bound struct {
			s quota.Scope
			n int
		}
		var bounds []bound
		family, opened := false, false
		for _, lim := range l.All {
			i := slices.IndexFunc(lim.Grants, func(g quota.Grant) bool { return g.Expires.IsZero() || g.Expires.After(now) })
			if i < 0 || !applies(lim.Scope, ask) {
				continue
			}
			bounds = append(bounds, bound{lim.Scope, lim.Grants[i].VCPUs})
			family = family || lim.Family != "" && lim.User == ""
			opened = opened || lim.Family != ""
		}
		whole := quota.Scope{Workspace: ask.Workspace, Family: ask.Family, Low: ask.Low}
		switch {
		case ask.Family == ncv3 && !opened:
			bounds = append(bounds, bound{whole, 0})
		case ask.Family != ncv3 && !family && l.Default > 0:
			bounds = append(bounds, bound{whole, l.Default})
		}
		if unlimited != (len(bounds) == 0) {
			t.Fatalf("unlimited %v with %v", unlimited, bounds)
		}
		if unlimited {
			return
		}
		tight := false
		for _, b := range bounds {
			before := held(use, b.s)
			if before < b.n && before+room > b.n {
				t.Fatalf("%d more break %+v, of which %d are in use", room, b, before)
			}
			tight = tight || before+room >= b.n
		}
		if !tight {
			t.Fatalf("%d is less than %v leave", room, bounds)
		}
	})
}

// TestRoomShrinks: what others take never makes room, and the other tier does not matter.
func TestRoomShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := genLimits(t)
		use := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) quota.Use { return genUse(t, "use") }), 0, 8).Draw(t, "use")
		ask, more := genUse(t, "ask"), genUse(t, "more")
		before, free, _ := l.Room(use, ask, now)
		after, still, _ := l.Room(append(slices.Clone(use), more), ask, now)
		if after > before || free != still {
			t.Fatalf("room %d became %d by another use", before, after)
		}
		if more.Low != ask.Low && after != before {
			t.Fatalf("the other tier changed room %d to %d", before, after)
		}
		slices.Reverse(use)
		slices.Reverse(l.All)
		if again, _, _ := l.Room(use, ask, now); again != before {
			t.Fatalf("room %d depends on the order: %d", before, again)
		}
	})
}

// TestExpiredIsGone: an ended grant is as good as none.
func TestExpiredIsGone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := genLimits(t)
		clean := l
		clean.All = nil
		for _, lim := range l.All {
			lim.Grants = slices.DeleteFunc(slices.Clone(lim.Grants), func(g quota.Grant) bool { return !g.Live(now) })
			clean.All = append(clean.All, lim)
		}
		ask := genUse(t, "ask")
		a, b, c := l.Room(nil, ask, now)
		x, y, z := clean.Room(nil, ask, now)
		if a != x || b != y || c != z {
			t.Fatalf("%d %v %q, without the ended %d %v %q", a, b, c, x, y, z)
		}
		if end, ok := l.Ends(now); ok && !end.After(now) {
			t.Fatalf("the next end %s is not to come", end)
		}
	})
}

// TestGrantsFallBack: when a grant ends, what the limit was before it counts again.
func TestGrantsFallBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grant := func(name string) quota.Grant {
			g := quota.Grant{VCPUs: rapid.IntRange(0, 100).Draw(t, name)}
			if rapid.Bool().Draw(t, name+" ends") {
				g.Expires = now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, name+" hours")) * time.Hour)
			}
			return g
		}
		lim := quota.Limit{}.With(grant("first")).With(grant("second"))
		last := grant("third")
		next := lim.With(last)
		for h := range 7 {
			at := now.Add(time.Duration(h) * time.Hour)
			want, wantOK := lim.At(at)
			if last.Live(at) {
				want, wantOK = last, true
			}
			if got, ok := next.At(at); ok != wantOK || got != want {
				t.Fatalf("after %d h: %+v %v, want %+v %v", h, got, ok, want, wantOK)
			}
		}
	})
}

// TestCeiling: no user's room is more than what all of a workspace can have together.
func TestCeiling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := genLimits(t)
		ask := genUse(t, "ask")
		room, free, _ := l.Room(nil, ask, now)
		top, unlimited := l.Ceiling(ask.Workspace, ask.Family, ask.Low, now)
		if top < 0 || free && !unlimited || !unlimited && room > top {
			t.Fatalf("room %d (%v), ceiling %d (%v)", room, free, top, unlimited)
		}
	})
}

func TestWhy(t *testing.T) {
	l := quota.Limits{Restricted: map[string]bool{sizes.FamilyKey(ncv3): true}}
	ask := quota.Use{Workspace: lab, Family: ncv3, User: "ann", VCPUs: 6}
	for _, c := range []struct {
		name  string
		limit quota.Limit
		use   []quota.Use
		ask   quota.Use
		room  int
		why   string
	}{
		{
			"restricted",
			quota.Limit{},
			nil, ask, 0,
			"standardNCSv3Family needs an approval, and there is none; ask for more with `berth quota request --family standardNCSv3Family --vcpus 6`",
		},
		{
			"workspace", limit(quota.Scope{Workspace: lab, Family: ncv3}, 24, time.Time{}),
			[]quota.Use{{Workspace: lab, Family: ncv3, User: "bob", Low: false, VCPUs: 20}},
			ask, 4,
			"workspace lab's limit of standardNCSv3Family is 24 vCPUs, of which 20 are in use; ask for more with `berth quota request --family standardNCSv3Family --vcpus 26`",
		},
		{
			"restricted since",
			quota.Limit{},
			[]quota.Use{{Workspace: lab, Family: ncv3, User: "bob", Low: false, VCPUs: 6}},
			ask, 0,
			"standardNCSv3Family needs an approval, and there is none (6 in use); ask for more with `berth quota request --family standardNCSv3Family --vcpus 12`",
		},
		{
			"lowered", limit(quota.Scope{Workspace: lab, Family: ncv3}, 6, time.Time{}),
			[]quota.Use{{Workspace: lab, Family: ncv3, User: "bob", Low: false, VCPUs: 12}},
			ask, 0,
			"workspace lab's limit of standardNCSv3Family is 6 vCPUs (12 in use); ask for more with `berth quota request --family standardNCSv3Family --vcpus 18`",
		},
		{
			"user", limit(quota.Scope{User: "ann", Low: true}, 8, time.Time{}), nil,
			quota.Use{Workspace: lab, Family: dsv2, User: "ann", Low: true, VCPUs: 16},
			8,
			"user ann's limit for low priority is 8 vCPUs; ask for more with `berth quota request --vcpus 16 --low-priority --user ann`",
		},
		{
			"ended", limit(quota.Scope{Workspace: lab, Family: ncv3}, 24, now), nil, ask, 0,
			"standardNCSv3Family needs an approval, and there is none; ask for more with `berth quota request --family standardNCSv3Family --vcpus 6`",
		},
	} {
		l.All = nil
		if c.limit.Grants != nil {
			l.All = []quota.Limit{c.limit}
		}
		room, _, why := l.Room(c.use, c.ask, now)
		if room != c.room || why != c.why {
			t.Errorf("%s: %d, %q", c.name, room, why)
		}
	}
	if _, unlimited, _ := (quota.Limits{}).Room(nil, ask, now); !unlimited {
		t.Error("without limits there is no end")
	}
}

func TestCheck(t *testing.T) {
	c, err := sizes.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := quota.Load(nil, c, 8)
	if err != nil {
		t.Fatal(err)
	}
	check := func(size string, low bool) error {
		s, ok := c.Find(size)
		if !ok {
			t.Fatal(size)
		}
		return l.Check(s, lab, "ann", low, now)
	}
	if err := check("Standard_DS4_v2", false); err != nil {
		t.Error(err)
	}
	if err := check("Standard_DS5_v2", false); berth.CodeOf(err) != berth.Limit || !strings.Contains(err.Error(), "needs 16 vCPUs") {
		t.Errorf("more than the server's default of 8: %v", err)
	}
	err = check("Standard_NC6s_v3", false)
	if berth.CodeOf(err) != berth.Limit || !strings.Contains(err.Error(), "needs an approval") {
		t.Errorf("restricted: %v", err)
	}
	l.All = append(l.All, limit(quota.Scope{Workspace: lab, Family: ncv3, User: "ann"}, 12, now.Add(time.Hour)))
	if err := check("Standard_NC6s_v3", false); err != nil {
		t.Error(err)
	}
	if check("Standard_NC6s_v3", true) == nil || check("Standard_NC24s_v3", false) == nil {
		t.Error("approved are 12 vCPUs, dedicated")
	}
	if top, unlimited := l.Ceiling(lab, ncv3, false, now); top != 12 || unlimited {
		t.Errorf("all of the workspace can have %d (%v)", top, unlimited)
	}
}

func TestRequests(t *testing.T) {
	r := quota.Request{ID: "q1", Scope: quota.Scope{Workspace: lab, Family: ncv3}, VCPUs: 24, By: "ann", Status: quota.Pending, Reason: "thesis"}
	if err := r.Check(now); err != nil {
		t.Fatal(err)
	}
	ok, g, err := r.Approve("root", "", 12, now.Add(time.Hour), now)
	if err != nil {
		t.Fatal(err)
	}
	want := quota.Grant{VCPUs: 12, Since: now, Expires: now.Add(time.Hour), By: "root", Reason: "thesis", Request: "q1"}
	if d := cmp.Diff(want, g); d != "" {
		t.Error(d)
	}
	if ok.State(now) != quota.Approved || ok.State(now.Add(time.Hour)) != quota.Expired || r.Status != quota.Pending {
		t.Errorf("%s, later %s", ok.State(now), ok.State(now.Add(time.Hour)))
	}
	if _, _, err := ok.Approve("root", "", 0, time.Time{}, now); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("twice: %v", err)
	}
	if _, err := ok.Deny("root", "no", now); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("denied after: %v", err)
	}
	if _, err := r.Deny("root", " ", now); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("without a reason: %v", err)
	}
	r.Expires = now.Add(-time.Minute)
	if _, _, err := r.Approve("root", "", 0, time.Time{}, now); berth.CodeOf(err) != berth.Invalid || r.Check(now) == nil {
		t.Errorf("for a time that has passed: %v", err)
	}
	if (quota.Request{}).Check(now) == nil {
		t.Error("nothing was asked for")
	}
}

func TestPrice(t *testing.T) {
	c, err := sizes.Load([]*store.Doc{
		{Kind: sizes.Kind, Name: "box", Body: []byte(`{"vCPUs":8,"memoryGB":32,"family":"boxes"}`)},
		{Kind: sizes.Kind, Name: "crate", Body: []byte(`{"vCPUs":4,"memoryGB":8,"family":"crates","price":2,"currency":"EUR"}`)},
		{Kind: sizes.Kind, Name: "crate2", Body: []byte(`{"vCPUs":8,"memoryGB":16,"family":"crates","price":3,"currency":"EUR"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		family, size string
		vcpus        int
		low          bool
		want         quota.Cost
	}{
		{"crates", "", 24, false, quota.Cost{Size: "crate2", Nodes: 3, PerHour: f(9), PerMonth: f(6570), Currency: "EUR"}},
		{"crates", "CRATE", 24, false, quota.Cost{Size: "crate", Nodes: 6, PerHour: f(12), PerMonth: f(8760), Currency: "EUR"}},
		{"crates", "", 4, false, quota.Cost{Size: "crate", Nodes: 1, PerHour: f(2), PerMonth: f(1460), Currency: "EUR"}},
		{"crates", "", 24, true, quota.Cost{}},
		{"crates", "crate", 24, true, quota.Cost{Size: "crate", Nodes: 6}},
		{"boxes", "", 24, false, quota.Cost{}},
		{"nothing", "", 24, false, quota.Cost{}},
		{ncv3, "Standard_NC6s_v3", 12, false, quota.Cost{Size: "Standard_NC6s_v3", Nodes: 2, PerHour: f(6.12), PerMonth: f(6.12 * 730), Currency: "USD"}},
	} {
		got := quota.Price(c, v.family, v.size, v.vcpus, v.low)
		near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9*math.Max(1, math.Abs(a)) })
		if d := cmp.Diff(v.want, got, near); d != "" {
			t.Errorf("%+v: %s", v, d)
		}
	}
}

func f(v float64) *float64 { return &v }

// TestNodesCountForWhoUsesThem: a node counts for those whose tasks are on it, and what is free of
// it for the one it was asked for; for the workspace it counts once.
func TestNodesCountForWhoUsesThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := berth.Node{User: "ann", VCPUs: rapid.IntRange(1, 16).Draw(t, "vcpus"), Slots: rapid.IntRange(1, 5).Draw(t, "slots")}
		tasks, free := map[string]int{}, n.Slots
		for _, user := range []string{"Ann", "bob", "eve"} {
			if k := rapid.IntRange(0, free).Draw(t, user); k > 0 {
				tasks[user] = k
				free -= k
			}
		}
		use := []quota.Use{{Workspace: "w", Family: "f", User: n.User, VCPUs: n.VCPUs, Shares: quota.Shares(n, tasks)}}
		room := func(scope quota.Scope) int {
			l := quota.Limits{All: []quota.Limit{{Scope: scope, Grants: []quota.Grant{{VCPUs: 100}}}}}
			left, _, _ := l.Room(use, quota.Use{Workspace: "w", Family: "f", User: scope.User}, time.Now())
			return 100 - left
		}
		if got := room(quota.Scope{Workspace: "w"}); got != n.VCPUs {
			t.Fatalf("the workspace has %d of %d vCPUs", got, n.VCPUs)
		}
		for _, user := range []string{"ann", "bob", "eve"} {
			k := tasks[user]
			if user == "ann" {
				k = tasks["Ann"] + free
			}
			part := float64(n.VCPUs*k) / float64(n.Slots)
			if got := float64(room(quota.Scope{User: user})); got < part || got >= part+1 {
				t.Fatalf("%s has %v, and a part of %v", user, got, part)
			}
		}
	})
}
