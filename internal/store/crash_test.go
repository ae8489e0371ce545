package store_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
	"github.com/berthml/berth/internal/store/pgtest"
)

// child is the life of the test binary when TestKill starts it: it writes documents until it is
// killed, and names each on standard output once it is acknowledged.
func child(job string) {
	url, run, _ := strings.Cut(job, "#")
	db, err := store.Open(context.Background(), url, store.Options{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("open")
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("r%s-g%d-%d", run, g, i)
				if err := db.Update(context.Background(), writeOne(name)); err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				fmt.Println(name)
			}
		})
	}
	wg.Wait()
}

// writeOne is an update whose parts must appear together or not at all.
func writeOne(name string) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		tx.Emit(berth.Event{Workspace: ws, Subject: "jobs/" + name, Type: berth.EventJobCreated})
		if err := tx.InsertTask(&berth.Task{ID: berth.TaskID(name + ".1"), Workspace: ws, Job: name}); err != nil {
			return err
		}
		d := job(name)
		d.Body = []byte(fmt.Sprintf(`{"pad":%q}`, strings.Repeat("x", 500)))
		return tx.Insert(d)
	}
}

// checkAll checks that everything acknowledged is there, and nothing in part.
func checkAll(t *testing.T, db *store.DB, acked map[string]bool) {
	t.Helper()
	look(t, db, func(tx *store.Tx) error {
		found := 0
		for after := int64(0); ; {
			page, err := tx.List(store.Query{Workspace: ws, Kind: "jobs", After: after, Asc: true})
			if err != nil {
				return err
			}
			for _, d := range page {
				if acked[d.Name] {
					found++
				}
				after = d.ID
				if tasks, err := tx.TasksOf(ws, d.Name); err != nil || len(tasks) != 1 {
					t.Errorf("%s has %d tasks (%v)", d.Name, len(tasks), err)
				}
				if events, err := tx.Events(store.EventQuery{Subject: "jobs/" + d.Name}); err != nil || len(events) != 1 {
					t.Errorf("%s has %d events (%v)", d.Name, len(events), err)
				}
			}
			if len(page) == 0 {
				break
			}
		}
		if found != len(acked) {
			t.Errorf("%d of %d acknowledged writes are there", found, len(acked))
		}
		rev, err := tx.Rev()
		if events, err := tx.Events(store.EventQuery{Desc: true, Limit: 1}); err != nil || len(events) > 0 && events[0].Rev > rev {
			t.Errorf("an event has revision %d, the head is %d (%v)", events[0].Rev, rev, err)
		}
		return err
	})
}

// TestKill kills a writing process at random moments: what it acknowledged is there, and the
// database is whole.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "berth.db")
	acked := make(map[string]bool)
	for run := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("STORE_TEST_CHILD=sqlite:%s#%d", path, run))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		for lines := bufio.NewScanner(out); lines.Scan(); {
			once.Do(func() { time.AfterFunc(rand.N(150*time.Millisecond), func() { cmd.Process.Kill() }) })
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "error"):
				t.Error(line)
			case line != "open":
				acked[line] = true
			}
		}
		cmd.Wait()
		db := open(t, "sqlite:"+path)
		checkAll(t, db, acked)
		db.Close()
		if run%3 == 2 {
			integrity(t, path)
		}
	}
	t.Logf("%d writes were acknowledged", len(acked))
}

func integrity(t *testing.T, path string) {
	t.Helper()
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	var verdict string
	if err := raw.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity: %s (%v)", verdict, err)
	}
}

// TestKillPostgres kills the database server under a store that goes on: what was acknowledged is
// there, nothing is written twice, and the store finds the server again.
func TestKillPostgres(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Start()
	pgtest.Need(t, err)
	t.Cleanup(server.Stop)
	db, err := store.Open(ctx, server.Schema(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var mu sync.Mutex
	acked := make(map[string]bool)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				name := fmt.Sprintf("g%d-%d", g, i)
				switch err := db.Update(ctx, writeOne(name)); {
				case err == nil:
					mu.Lock()
					acked[name] = true
					mu.Unlock()
				case berth.CodeOf(err) != berth.Unavailable:
					t.Errorf("%s: %v", name, err)
				default:
					<-time.After(10 * time.Millisecond) // as a client would
				}
			}
		})
	}
	watched := make(map[string]bool)
	watching, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	watcher := make(chan struct{})
	go func() {
		defer close(watcher)
		for w := db.Watch(watching, 0); !watched["jobs/last"]; {
			events, err := w.Next()
			if berth.CodeOf(err) == berth.Unavailable {
				<-time.After(10 * time.Millisecond)
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			for _, e := range events {
				if watched[e.Subject] {
					t.Errorf("%s was watched twice", e.Subject)
				}
				watched[e.Subject] = true
			}
		}
	}()
	for range 2 {
		<-time.After(100*time.Millisecond + rand.N(50*time.Millisecond)) // let it write for a while
		server.Kill()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	wg.Wait()
	must(t, db, writeOne("last"))
	acked["last"] = true
	checkAll(t, db, acked)
	<-watcher
	for name := range acked {
		if !watched["jobs/"+name] {
			t.Errorf("%s was not watched", name)
		}
	}
	t.Logf("%d writes were acknowledged", len(acked))
}
