package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// member opens a database as the server of that name in a home.
func member(t *testing.T, url, home, name string) (*store.DB, error) {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{NoSync: true, Server: store.Member{Who: "server " + name + " of " + home, Home: home, Name: name}})
	if err == nil {
		t.Cleanup(func() { db.Close() })
	}
	return db, err
}

func mustMember(t *testing.T, url, home, name string) *store.DB {
	t.Helper()
	db, err := member(t, url, home, name)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// terms has a server lead whenever it is elected, until the test ends or stop is called. A context
// is sent for each term.
func terms(t *testing.T, db *store.DB) (elected <-chan context.Context, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	terms, done := make(chan context.Context, 16), make(chan struct{})
	go func() {
		defer close(done)
		err := db.Lead(ctx, func(ctx context.Context) error {
			terms <- ctx
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return terms, stop
}

// stall makes a server look as if it had said nothing for long, until it speaks again.
func stall(t *testing.T, url, name string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(t.Context(), "UPDATE servers SET seen = 1 WHERE name = $1", name); err != nil {
		t.Fatal(err)
	}
}

// stalling stalls a server again and again until the returned function is called.
func stalling(t *testing.T, url, name string) (stop func()) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.Close(context.Background())
		for ctx.Err() == nil {
			_, _ = c.Exec(ctx, "UPDATE servers SET seen = 1 WHERE name = $1", name) // it may wait for a lock when it is told to end
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// TestServerOfAnotherHomeIsRefused: the servers of a database share a home. One of another is told
// who has it, and may have it when those have ended.
func TestServerOfAnotherHomeIsRefused(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	first := mustMember(t, url, "one", "a")
	second := mustMember(t, url, "one", "b")
	must(t, first, writeOne("a"))
	must(t, second, writeOne("b"))
	if _, err := member(t, url, "two", "a"); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "is used by server a of one, since 2") {
		t.Errorf("a server of another home: %v", err)
	}
	must(t, first, writeOne("c"))
	elected, stop := terms(t, first)
	<-elected
	stop()
	first.Close()
	second.Close()
	third := mustMember(t, url, "two", "a")
	must(t, third, writeOne("d")) // before anybody leads again
	elected, _ = terms(t, third)
	if err := third.Update(<-elected, writeOne("e")); err != nil {
		t.Error(err)
	}
}

// TestServerOfAnotherHomeLeavesTheSchema: one that would have to bring the schema up to date is
// refused before it does.
func TestServerOfAnotherHomeLeavesTheSchema(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	mustMember(t, url, "one", "a")
	raw := rawDB(t, url)
	defer raw.Close()
	if _, err := raw.Exec("UPDATE schema_version SET version = 3"); err != nil {
		t.Fatal(err)
	}
	if _, err := member(t, url, "two", "a"); berth.CodeOf(err) != berth.Conflict || !strings.Contains(err.Error(), "is used by server a of one, since 2") {
		t.Errorf("a server of another home: %v", err)
	}
	version := 0
	if err := raw.QueryRow("SELECT version FROM schema_version").Scan(&version); err != nil || version != 3 {
		t.Errorf("the schema is %d, %v", version, err)
	}
}

// TestServerThatWasReplacedStops: a server that said nothing for so long that another home has the
// database writes nothing any more, and is told.
func TestServerThatWasReplacedStops(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	first := mustMember(t, url, "one", "a")
	guarded := make(chan error, 1)
	go func() { guarded <- first.Guard(t.Context()) }()
	var second *store.DB
	for second == nil { // the first one speaks twice a second: in between it is made to seem dead
		stop := stalling(t, url, "a")
		db, err := member(t, url, "two", "b")
		stop()
		if err != nil && berth.CodeOf(err) != berth.Conflict {
			t.Fatal(err)
		}
		second = db
	}
	elected, _ := terms(t, second)
	<-elected
	if err := first.Update(t.Context(), writeOne("c")); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "server b of two") {
		t.Errorf("an update of the first: %v", err)
	}
	if err := <-guarded; berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "server b of two") {
		t.Errorf("the guard of the first: %v", err)
	}
	must(t, second, writeOne("d"))
}

// TestOneServerLeads: of three servers one leads; when it ends another does, in a later term.
func TestOneServerLeads(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	leader := make(chan int, 16)
	var dbs []*store.DB
	var stops []func()
	term := make(chan int64, 16)
	for i, name := range []string{"a", "b", "c"} {
		db := mustMember(t, url, "one", name)
		elected, stop := terms(t, db)
		dbs, stops = append(dbs, db), append(stops, stop)
		go func() {
			for {
				select {
				case ctx := <-elected:
					term <- berth.TermOf(ctx)
					leader <- i
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
	last := int64(0)
	for range dbs {
		got := <-term
		if got <= last {
			t.Fatalf("term %d after %d", got, last)
		}
		last = got
		i := <-leader
		servers, err := dbs[i].Servers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leads := 0
		for j, s := range servers {
			if s.Leads {
				leads++
				if j != i {
					t.Errorf("server %s is said to lead, not %d", s.Name, i)
				}
			}
		}
		if len(servers) != 3 || leads != 1 {
			t.Errorf("%+v", servers)
		}
		stops[i]()
		dbs[i].Close()
	}
}

// TestPastTermWritesNothing: what a leader writes in its term is refused from the moment another
// leads, while its other updates go on; it learns that its term is over, and leads again when its
// turn comes.
func TestPastTermWritesNothing(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	first := mustMember(t, url, "one", "a")
	elected, _ := terms(t, first)
	term := <-elected
	if err := first.Update(term, writeOne("in-term")); err != nil {
		t.Fatal(err)
	}
	second := mustMember(t, url, "one", "b")
	next, stop := terms(t, second)
	var later context.Context
	for later == nil {
		stall(t, url, "a")
		select {
		case later = <-next:
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := first.Update(context.WithoutCancel(term), writeOne("too-late")); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "server b of one") {
		t.Errorf("an update of the first term: %v", err)
	}
	must(t, first, writeOne("an-intent"))
	if err := second.Update(later, writeOne("in-the-second-term")); err != nil {
		t.Error(err)
	}
	<-term.Done()
	stop()
	second.Close()
	third := <-elected
	if berth.TermOf(third) <= berth.TermOf(later) {
		t.Errorf("term %d after %d", berth.TermOf(third), berth.TermOf(later))
	}
	if err := first.Update(third, writeOne("in-the-third-term")); err != nil {
		t.Error(err)
	}
}

// TestStalledServerHoldsUpNobody: a server that stops in the middle of an update, with the lock
// that all updates need, loses the lock and goes on later.
func TestStalledServerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	first, second := mustMember(t, url, "one", "a"), mustMember(t, url, "one", "b")
	inside, goOn, done := make(chan struct{}, 9), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- first.Update(t.Context(), func(tx *store.Tx) error {
			inside <- struct{}{}
			<-goOn
			return writeOne("stalled")(tx)
		})
	}()
	<-inside
	must(t, second, writeOne("meanwhile"))
	close(goOn)
	if err := <-done; err != nil && berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("the update that stalled: %v", err)
	}
	must(t, first, writeOne("after"))
}

// TestLeaderThatIsCutOffStops: a leader whose connections to the database hang ends its term by its
// own clock, before another is elected, and says so. When it is heard again it may lead again.
func TestLeaderThatIsCutOffStops(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	way := sharedPostgres(t).Proxy(t)
	first := mustMember(t, way.Through(t, url), "one", "a")
	elected, stop := terms(t, first)
	term := <-elected
	way.Set(true, false)
	select {
	case <-term.Done():
	case <-time.After(time.Minute):
		t.Fatal("it leads on")
	}
	if first.Leads() || berth.CodeOf(first.Heard()) != berth.Unavailable {
		t.Errorf("leads %v, heard: %v", first.Leads(), first.Heard())
	}
	way.Set(false, false)
	term = <-elected // nobody else wanted to
	second := mustMember(t, url, "one", "b")
	next, _ := terms(t, second)
	way.Set(true, false)
	later := <-next
	if first.Leads() {
		t.Error("both lead")
	}
	<-term.Done()
	stop()
	way.Set(false, false)
	if err := first.Update(context.WithoutCancel(term), writeOne("too-late")); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("an update of the term before: %v", err)
	}
	if err := second.Update(later, writeOne("in-term")); err != nil {
		t.Error(err)
	}
}

// TestLeaderThatEndsSlowlyLetsAnotherLead: a leader that was cut off and is heard again, while what
// it did in its term has not ended yet, keeps nobody from leading. When that has ended it is a
// candidate again.
func TestLeaderThatEndsSlowlyLetsAnotherLead(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	way := sharedPostgres(t).Proxy(t)
	first := mustMember(t, way.Through(t, url), "one", "a")
	begun, goOn, done := make(chan context.Context, 16), make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- first.Lead(ctx, func(ctx context.Context) error {
			begun <- ctx
			<-ctx.Done()
			<-goOn
			return nil
		})
	}()
	end := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(func() { cancel(); end(); <-done })
	term := <-begun
	way.Set(true, false)
	<-term.Done()
	way.Set(false, false)
	for first.Heard() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	second := mustMember(t, url, "one", "b")
	elected, stop := terms(t, second)
	select {
	case later := <-elected:
		if err := second.Update(later, writeOne("in-term")); err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("no server leads")
	}
	if err := first.Update(context.WithoutCancel(term), writeOne("too-late")); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("an update of the first term: %v", err)
	}
	end()
	stop()
	second.Close()
	<-begun
}
