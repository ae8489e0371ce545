package cost

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/berthml/berth"
)

// Shares of a budget at which something happens: a warning, and the end.
const (
	warnAt = 0.8
	endAt  = 1.0
	// grain is below every price that matters and above what sums of prices are off by.
	grain = 1e-9
)

// CheckBudget says what is wrong with a budget.
func CheckBudget(b berth.Budget) error {
	switch b.Period {
	case berth.PeriodMonth, berth.PeriodWeek, berth.PeriodTotal:
	default:
		return berth.Errorf(berth.Invalid, "period %q is not month, week or total", b.Period)
	}
	switch {
	case b.Amount <= 0 || math.IsInf(b.Amount, 0) || math.IsNaN(b.Amount):
		return berth.Errorf(berth.Invalid, "amount is %g; give what may be spent, more than 0", b.Amount)
	case len(b.Currency) != 3 || strings.ToUpper(b.Currency) != b.Currency:
		return berth.Errorf(berth.Invalid, "currency %q is not a code of three capital letters such as USD", b.Currency)
	}
	return nil
}

// Period is the beginning and the end of the period that a time is in. That of a budget without
// periods begins when it was made and has no end.
func Period(b berth.Budget, made, now time.Time) (from, to time.Time) {
	now = now.UTC()
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	switch b.Period {
	case berth.PeriodMonth:
		from = day.AddDate(0, 0, 1-now.Day())
		return from, from.AddDate(0, 1, 0)
	case berth.PeriodWeek:
		from = day.AddDate(0, 0, -(int(now.Weekday())+6)%7)
		return from, from.AddDate(0, 0, 7)
	}
	return made.UTC(), time.Time{}
}

// Ledger is what a budget has paid for in a period: everything that has ended. It is kept with the
// budget, so that no more than what is new has to be read.
type Ledger struct {
	From    time.Time `json:"from"`   // beginning of the period
	Cursor  int64     `json:"cursor"` // meters up to this document are in it
	Spent   float64   `json:"spent"`
	Unknown float64   `json:"unknown,omitempty"` // node hours without a price in the budget's currency
	// Tasks is what tasks paid for nodes that live, by node: the rest of such a node's life is
	// idle.
	Tasks map[string]float64 `json:"tasks,omitempty"`
	// Warned and Ended say that the crossing was told.
	Warned bool `json:"warned,omitempty"`
	Ended  bool `json:"ended,omitempty"`
}

// Add writes a meter of something that has ended into the ledger.
func (l *Ledger) Add(b berth.Budget, m berth.Meter) {
	paid, unknown, any := share(b, m, l.From)
	if m.Job != "" {
		if any {
			l.paidFor(m.Node, paid)
		}
		if covers(b, m.User) {
			l.Spent += paid
			if b.User != "" {
				l.Unknown += unknown
			}
		}
		return
	}
	if covers(b, m.User) {
		l.Spent += max(0, paid-l.Tasks[m.Node])
		if b.User == "" {
			l.Unknown += unknown
		}
	}
	delete(l.Tasks, m.Node)
}

// paidFor notes what was paid for a node that lives.
func (l *Ledger) paidFor(node string, paid float64) {
	if l.Tasks == nil {
		l.Tasks = map[string]float64{}
	}
	l.Tasks[node] += paid
}

// addPart writes what was rolled up into the ledger, with the same result as Add.
func (l *Ledger) addPart(b berth.Budget, p part) {
	switch {
	case !covers(b, p.User):
	case p.Priced && p.Currency == b.Currency:
		l.Spent += p.cost
	case b.User != "" && p.Job != "", b.User == "" && !berth.IsLocal(p.Compute):
		l.Unknown += p.hours
	}
}

// share is what a meter costs from a time on, and the node hours that a budget cannot count; any is
// false when all of it was before.
func share(b berth.Budget, m berth.Meter, from time.Time) (paid, unknown float64, any bool) {
	m, any = (Window{from, m.To}).clip(m)
	switch {
	case !any:
	case m.Priced && m.Currency == b.Currency:
		paid = m.Cost()
	case m.Job == "":
		unknown = m.To.Sub(m.From).Hours()
	default:
		unknown = m.To.Sub(m.From).Hours() / float64(max(1, m.Slots))
	}
	return paid, unknown, any
}

func covers(b berth.Budget, user string) bool { return b.User == "" || strings.EqualFold(b.User, user) }

// Spent is what a budget has paid and is paying for.
type Spent struct {
	Amount  float64
	Rate    float64 // an hour of what lives now
	Unknown float64
	jobs    map[string]float64 // of Amount, what jobs that run account for
}

// Spend is what has been spent of a budget when live is what has not ended: nodes and the tasks on
// them, up to now. A task is paid for by its user, the rest of a node's life by the one it was
// asked for.
func Spend(b berth.Budget, l Ledger, live []berth.Meter) Spent {
	s := Spent{Amount: l.Spent, Unknown: l.Unknown, jobs: map[string]float64{}}
	type taken struct{ paid, rate float64 }
	tasks := map[string]taken{}
	for _, m := range live {
		if m.Job == "" {
			continue
		}
		paid, unknown, _ := share(b, m, l.From)
		rate := rateIn(b, m)
		t := tasks[m.Node]
		tasks[m.Node] = taken{t.paid + paid, t.rate + rate}
		if covers(b, m.User) {
			s.Amount += paid
			s.Rate += rate
			s.jobs[m.Job] += paid
			if b.User != "" {
				s.Unknown += unknown
			}
		}
	}
	for _, m := range live {
		if m.Job != "" || !covers(b, m.User) {
			continue
		}
		paid, unknown, _ := share(b, m, l.From)
		t := tasks[m.Node]
		s.Amount += max(0, paid-t.paid-l.Tasks[m.Node])
		s.Rate += max(0, rateIn(b, m)-t.rate)
		if b.User == "" {
			s.Unknown += unknown
		}
	}
	return s
}

func rateIn(b berth.Budget, m berth.Meter) float64 {
	if m.Priced && m.Currency == b.Currency {
		return m.Rate
	}
	return 0
}

// Held is what a job that has not ended reserved.
type Held struct {
	Job, User, Currency string
	Amount              float64
}

// StatusOf returns the status of a budget that was created at made.
func StatusOf(b berth.Budget, made time.Time, l Ledger, live []berth.Meter, held []Held, now time.Time) berth.BudgetStatus {
	from, to := Period(b, made, now)
	spent := Spend(b, l, live)
	s := berth.BudgetStatus{
		Name: b.Name(), Budget: b, From: from, To: to, Spent: spent.Amount, Rate: spent.Rate, Unknown: spent.Unknown, State: "ok",
	}
	for _, h := range held {
		if covers(b, h.User) && h.Currency == b.Currency {
			s.Reserved += max(0, h.Amount-spent.jobs[h.Job])
		}
	}
	s.Left = b.Amount - s.Spent - s.Reserved
	switch {
	case reached(s, endAt):
		s.State, s.UsedUpAt = "exhausted", now
	case reached(s, warnAt):
		s.State = "warning"
	}
	if at := crossing(s, endAt, now); s.UsedUpAt.IsZero() && (to.IsZero() || at.Before(to)) {
		s.UsedUpAt = at
	}
	return s
}

// reached reports whether a share of the budget is spent.
func reached(s berth.BudgetStatus, share float64) bool { return s.Spent >= s.Amount*share-grain }

// crossing is when a share of the budget will be spent if everything goes on as now; zero when it
// will not.
func crossing(s berth.BudgetStatus, share float64, now time.Time) time.Time {
	hours := (s.Amount*share - s.Spent) / s.Rate
	if s.Rate <= 0 || hours > 1e5 { // ten years
		return time.Time{}
	}
	return now.Add(time.Duration(hours*float64(time.Hour)) + time.Millisecond)
}

// Next is when a budget has to be looked at although nothing happened: when a share of it will be
// spent, or its period ends. Zero is never.
func Next(s berth.BudgetStatus, now time.Time) time.Time {
	next := s.To
	for _, share := range []float64{warnAt, endAt} {
		if reached(s, share) {
			continue
		}
		if at := crossing(s, share, now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// Cross notes what has come true since the last look, so that it is told once: warn that the share
// for a warning is spent, end that the budget is. What is not true any more, because the amount was
// raised or a period began, can come true again.
func (l *Ledger) Cross(s berth.BudgetStatus) (warn, end bool) {
	isWarned, isEnded := reached(s, warnAt), reached(s, endAt)
	warn, end = isWarned && !l.Warned, isEnded && !l.Ended
	l.Warned, l.Ended = isWarned, isEnded
	return warn, end
}

// Ask is what a job would reserve.
type Ask struct {
	Amount   float64
	Priced   bool // Amount is known
	Currency string
	How      string // what it is made of: "2 nodes for 4h0m0s at 0.60 USD an hour each"
}

// Fits says whether a budget has room for a job, one sentence in any case.
func Fits(s berth.BudgetStatus, a Ask) (ok bool, why string) {
	title := Title(s.Budget)
	switch {
	case Exceeds(s.Budget, a):
		return false, fmt.Sprintf("the job reserves %s (%s), more than the whole of %s: lower its limits.timeout, or have the budget raised",
			Money(a.Amount, a.Currency), a.How, title)
	case reached(s, endAt):
		return false, fmt.Sprintf("%s is used up: %s spent%s", title, Money(s.Spent, s.Currency), until(s))
	case !a.Priced:
		return true, fmt.Sprintf("%s cannot count it: the price of the size is not known", title)
	case a.Currency != s.Currency:
		return true, fmt.Sprintf("%s cannot count it: the size is priced in %s", title, a.Currency)
	case a.Amount > s.Left+grain:
		why = fmt.Sprintf("%s has %s left, and the job reserves %s (%s)", title, Money(max(0, s.Left), s.Currency), Money(a.Amount, a.Currency), a.How)
		if s.Reserved > 0 {
			why += fmt.Sprintf("; other jobs hold %s until they end", Money(s.Reserved, s.Currency))
		}
		return false, why
	}
	return true, fmt.Sprintf("%s has %s left, and the job reserves %s (%s)", title, Money(s.Left, s.Currency), Money(a.Amount, a.Currency), a.How)
}

// Exceeds says that a job reserves more than a budget has in a whole period, so that no waiting
// makes it fit.
func Exceeds(b berth.Budget, a Ask) bool {
	return a.Priced && a.Currency == b.Currency && a.Amount > b.Amount+grain
}

func until(s berth.BudgetStatus) string {
	if s.To.IsZero() {
		return ""
	}
	return ", and a new " + s.Period + " begins on " + s.To.Format(time.DateOnly)
}

// Title is a budget for people.
func Title(b berth.Budget) string {
	whose := "the workspace's budget"
	if b.User != "" {
		whose = "the budget of user " + b.User
	}
	if b.Period == berth.PeriodTotal {
		return fmt.Sprintf("%s of %s", whose, Money(b.Amount, b.Currency))
	}
	return fmt.Sprintf("%s of %s a %s", whose, Money(b.Amount, b.Currency), b.Period)
}

// Money is an amount for people: cents, and more digits where cents say nothing.
func Money(amount float64, currency string) string {
	text := fmt.Sprintf("%.2f", amount)
	switch a := math.Abs(amount); {
	case a >= 0.1 || a == 0:
	case a < 0.0001:
		text = "<0.0001"
	default:
		text = fmt.Sprintf("%.2g", amount)
	}
	return strings.TrimSpace(text + " " + currency)
}
