package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/store"
)

// TestServers has three servers on one database: watchers of each see the events of all, in the
// same order.
func TestServers(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	const servers, writers, each = 3, 3, 30
	var dbs []*store.DB
	for range servers {
		dbs = append(dbs, open(t, url))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	seen := make([][]berth.Event, 2*servers)
	var watching, writing sync.WaitGroup
	for i := range seen {
		watching.Go(func() {
			w := dbs[i%servers].Watch(ctx, 0)
			for len(seen[i]) < servers*writers*each {
				events, err := w.Next()
				if err != nil {
					t.Errorf("after %d events: %v", len(seen[i]), err)
					return
				}
				seen[i] = append(seen[i], events...)
			}
		})
	}
	for i, db := range dbs {
		for j := range writers {
			writing.Go(func() {
				for k := range each {
					must(t, db, writeOne(fmt.Sprintf("%d-%d-%d", i, j, k)))
				}
			})
		}
	}
	writing.Wait()
	watching.Wait()
	for i := range seen {
		if diff := cmp.Diff(seen[0], seen[i]); diff != "" {
			t.Errorf("watchers 0 and %d: %s", i, diff)
		}
		for j := 1; j < len(seen[i]); j++ {
			if seen[i][j].Rev <= seen[i][j-1].Rev {
				t.Fatalf("revision %d after %d", seen[i][j].Rev, seen[i][j-1].Rev)
			}
		}
	}
	// An idle server hears of a commit of another.
	quiet := dbs[2].Watch(ctx, dbs[0].Rev())
	must(t, dbs[0], writeOne("after"))
	if events, err := quiet.Next(); err != nil || events[0].Subject != "jobs/after" {
		t.Errorf("got %+v, %v", events, err)
	}
}

// TestLeaseBetweenServers: of many that want a lease one gets it.
func TestLeaseBetweenServers(t *testing.T) {
	t.Parallel()
	url := sharedPostgres(t).Schema(t)
	got := make(chan string, 8)
	var wg sync.WaitGroup
	for i := range 4 {
		db := open(t, url)
		wg.Go(func() {
			must(t, db, func(tx *store.Tx) error {
				ok, err := tx.Lease("control", fmt.Sprint(i), time.Minute)
				if ok {
					got <- fmt.Sprint(i)
				}
				return err
			})
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Errorf("%d servers have the lease", len(got))
	}
}
