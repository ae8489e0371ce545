// Package quota says how many vCPUs a workspace, a family of sizes and a user may have at once,
// dedicated and low priority apart, and who may use a series that needs an approval. Deciding is
// pure; limits and requests are documents (store.go).
package quota

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/sizes"
)

// Scope is what a limit is about. What is empty is not told apart: a scope with only a User is all
// that user has, anywhere.
type Scope struct {
	Workspace string `json:"workspace,omitempty"` // its key
	Family    string `json:"family,omitempty"`
	User      string `json:"user,omitempty"`
	Low       bool   `json:"low,omitempty"`
}

// covers reports whether what u has or asks for counts against the scope.
func (s Scope) covers(u Use) bool {
	return s.Low == u.Low && (s.Workspace == "" || strings.EqualFold(s.Workspace, u.Workspace)) &&
		(s.Family == "" || sizes.SameFamily(s.Family, u.Family)) && (s.User == "" || strings.EqualFold(s.User, u.User))
}

// same reports whether two scopes are one.
func (s Scope) same(o Scope) bool {
	return s.Low == o.Low && strings.EqualFold(s.Workspace, o.Workspace) && sizes.SameFamily(s.Family, o.Family) && strings.EqualFold(s.User, o.User)
}

// Key is the scope as the name of its document.
func (s Scope) Key() string {
	tier := "dedicated"
	if s.Low {
		tier = "low"
	}
	return strings.ToLower(s.Workspace + "|" + sizes.FamilyKey(s.Family) + "|" + s.User + "|" + tier)
}

// Use is what somebody has of a family, or asks for.
type Use struct {
	Workspace string // its key
	Family    string
	User      string
	Low       bool
	VCPUs     int
	// Shares is how many vCPUs count for which user, see Shares; nil is all of them for User.
	Shares map[string]int
}

// Grant is a number that was once given to a scope. The newest that has not ended counts.
type Grant struct {
	VCPUs   int       `json:"vCPUs"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires,omitzero"` // never when zero
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	Request string    `json:"request,omitempty"` // that it answers
}

// Live reports whether the grant has not ended.
func (g Grant) Live(now time.Time) bool { return g.Expires.IsZero() || now.Before(g.Expires) }

// Limit is the grants of a scope, the newest first.
type Limit struct {
	Scope
	Grants []Grant `json:"grants"`
}

// At is the grant that counts at a time.
func (l Limit) At(now time.Time) (Grant, bool) {
	for _, g := range l.Grants {
		if g.Live(now) {
			return g, true
		}
	}
	return Grant{}, false
}

// With is the limit after another grant. When that ends, an older one that has not counts again;
// those that never can are dropped.
func (l Limit) With(g Grant) Limit {
	grants := []Grant{g}
	for _, old := range l.Grants {
		if !g.Expires.IsZero() && (old.Expires.IsZero() || old.Expires.After(g.Expires)) {
			grants = append(grants, old)
		}
	}
	l.Grants = grants
	return l
}

// Limits is every limit of a server.
type Limits struct {
	// Default is how many vCPUs of a family a workspace may have where no limit says anything; 0 is
	// no end.
	Default int
	// Restricted are the keys of the families of which nobody has anything without a grant for that
	// family.
	Restricted map[string]bool
	All        []Limit
}

// bound is one number that holds for an ask, and what counts against it.
type bound struct {
	scope Scope
	vcpus int
	why   string // whose limit it is
}

// bounds is every number that holds for an ask.
func (l Limits) bounds(ask Use, now time.Time) []bound {
	var out []bound
	said, granted := false, false // about the family as a whole; about the family for this ask
	for _, lim := range l.All {
		g, ok := lim.At(now)
		if !ok || !lim.covers(ask) {
			continue
		}
		if lim.Family != "" {
			granted = true
			said = said || lim.User == ""
		}
		out = append(out, bound{lim.Scope, g.VCPUs, lim.Title() + " is " + Cores(g.VCPUs)})
	}
	family := Scope{Workspace: ask.Workspace, Family: ask.Family, Low: ask.Low}
	switch {
	case l.Restricted[sizes.FamilyKey(ask.Family)]:
		if !granted {
			out = append(out, bound{family, 0, ask.Family + " needs an approval, and there is none" + tierOf(ask.Low)})
		}
	case !said && l.Default > 0:
		out = append(out, bound{family, l.Default, "the server's default for each workspace is " + Cores(l.Default) + " of " + ask.Family + tierOf(ask.Low)})
	}
	return out
}

// Room is how many vCPUs more may be taken for an ask beside what is in use: the least that any
// limit leaves, never below 0. why says whose limit that is and what to do about it. Without any
// limit it is unlimited.
func (l Limits) Room(use []Use, ask Use, now time.Time) (vcpus int, unlimited bool, why string) {
	bounds := l.bounds(ask, now)
	if len(bounds) == 0 {
		return math.MaxInt, true, ""
	}
	var least bound
	var taken int
	vcpus = math.MaxInt
	for _, b := range bounds {
		used := used(use, b.scope)
		if left := max(0, b.vcpus-used); left < vcpus {
			vcpus, least, taken = left, b, used
		}
	}
	why = least.why
	switch {
	case taken > least.vcpus: // it was lowered since
		why += " (" + strconv.Itoa(taken) + " in use)"
	case taken > 0:
		why += ", of which " + strconv.Itoa(taken) + " are in use"
	}
	return vcpus, false, why + "; ask for more with `" + request(least.scope, ask, taken) + "`"
}

// Check says why a compute of a size can never have a node: its series needs an approval, or a
// limit is below one node.
func (l Limits) Check(s berth.Size, workspace, user string, low bool, now time.Time) error {
	ask := Use{Workspace: workspace, Family: s.Family, User: user, Low: low, VCPUs: s.VCPUs}
	room, unlimited, why := l.Room(nil, ask, now)
	if unlimited || room >= s.VCPUs {
		return nil
	}
	return berth.Errorf(berth.Limit, "a node of %s needs %s: %s", s.Name, Cores(s.VCPUs), why)
}

// Ceiling is the most that all users of a workspace together can have of a family.
func (l Limits) Ceiling(workspace, family string, low bool, now time.Time) (vcpus int, unlimited bool) {
	all := Use{Workspace: workspace, Family: family, Low: low}
	bounds := l.bounds(all, now)
	vcpus = math.MaxInt
	for _, b := range bounds {
		vcpus = min(vcpus, b.vcpus)
	}
	if vcpus > 0 || !l.Restricted[sizes.FamilyKey(family)] {
		return vcpus, len(bounds) == 0
	}
	// Some users may have what the others may not.
	sum, seen := 0, map[string]bool{}
	for _, lim := range l.All {
		if lim.User == "" || lim.Family == "" || seen[strings.ToLower(lim.User)] {
			continue
		}
		seen[strings.ToLower(lim.User)] = true
		one := all
		one.User = lim.User
		room, _, _ := l.Room(nil, one, now)
		sum += room
	}
	return sum, false
}

// Ends is when the next grant ends, which can give or take room; ok is false when none does.
func (l Limits) Ends(now time.Time) (at time.Time, ok bool) {
	for _, lim := range l.All {
		for _, g := range lim.Grants {
			if g.Expires.After(now) && (!ok || g.Expires.Before(at)) {
				at, ok = g.Expires, true
			}
		}
	}
	return at, ok
}

// Of is the limit of exactly a scope.
func (l Limits) Of(s Scope) (Limit, bool) {
	i := slices.IndexFunc(l.All, func(x Limit) bool { return x.same(s) })
	if i < 0 {
		return Limit{Scope: s}, false
	}
	return l.All[i], true
}

// Row is a limit as it counts in a workspace, with what is in use of it.
type Row struct {
	Scope
	Title   string    `json:"title"`
	VCPUs   int       `json:"vCPUs"` // -1 when there is no limit
	Used    int       `json:"used"`
	Expires time.Time `json:"expires,omitzero"`
	By      string    `json:"by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Request string    `json:"request,omitempty"`
}

// Rows is every limit that counts in a workspace, and the families in use there that have none of
// their own.
func (l Limits) Rows(workspace string, use []Use, now time.Time) []Row {
	var rows []Row
	for _, lim := range l.All {
		if g, ok := lim.At(now); ok && (lim.Workspace == "" || strings.EqualFold(lim.Workspace, workspace)) {
			rows = append(rows, Row{lim.Scope, lim.Title(), g.VCPUs, used(use, lim.Scope), g.Expires, g.By, g.Reason, g.Request})
		}
	}
	seen := map[string]bool{}
	for _, u := range use {
		s := Scope{Workspace: workspace, Family: u.Family, Low: u.Low}
		said := slices.ContainsFunc(l.All, func(x Limit) bool {
			_, live := x.At(now)
			return live && x.User == "" && x.Family != "" && x.covers(Use{Workspace: workspace, Family: u.Family, Low: u.Low})
		})
		if !strings.EqualFold(u.Workspace, workspace) || said || seen[s.Key()] {
			continue
		}
		seen[s.Key()] = true
		row := Row{Scope: s, Title: s.Title(), VCPUs: -1, Used: used(use, s)}
		switch {
		case l.Restricted[sizes.FamilyKey(u.Family)]:
			row.VCPUs, _ = l.Ceiling(workspace, u.Family, u.Low, now)
		case l.Default > 0:
			row.VCPUs, row.By = l.Default, "the server's default"
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return strings.Compare(a.Key(), b.Key()) })
	return rows
}

func used(use []Use, s Scope) int {
	n := 0
	for _, u := range use {
		if s.User != "" && u.Shares != nil {
			u.User, u.VCPUs = s.User, u.Shares[strings.ToLower(s.User)]
		}
		if s.covers(u) {
			n += u.VCPUs
		}
	}
	return n
}

// Cores is a number of vCPUs for people.
func Cores(n int) string {
	if n == 1 {
		return "1 vCPU"
	}
	return strconv.Itoa(n) + " vCPUs"
}

func tierOf(low bool) string {
	if low {
		return " for low priority"
	}
	return ""
}

// Title is a scope for people.
func (s Scope) Title() string {
	_, name, _ := strings.Cut(s.Workspace, "/workspaces/")
	out := "the server's limit"
	switch {
	case s.User != "" && s.Workspace != "":
		out = "user " + s.User + "'s limit in workspace " + name
	case s.User != "":
		out = "user " + s.User + "'s limit"
	case s.Workspace != "":
		out = "workspace " + name + "'s limit"
	}
	if s.Family != "" {
		out += " of " + s.Family
	}
	return out + tierOf(s.Low)
}

// request is the command with which to ask for a wider limit: enough for what is in use and the
// ask.
func request(s Scope, ask Use, taken int) string {
	cmd := "berth quota request"
	if s.Family != "" {
		cmd += " --family " + strings.ReplaceAll(ask.Family, " ", "") // which is the same, and needs no quotes
	}
	cmd += fmt.Sprintf(" --vcpus %d", taken+max(1, ask.VCPUs))
	if s.Low {
		cmd += " --low-priority"
	}
	if s.User != "" {
		cmd += " --user " + s.User
	}
	return cmd
}
