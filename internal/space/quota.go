package space

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// StorageTag is the tag of a workspace that says how many bytes it may store.
const StorageTag = "berth.storage_bytes"

const (
	limitFor   = 10 * time.Second // a limit that was read is used for
	measureFor = time.Minute      // a size that was measured is used for
	fullFor    = 5 * time.Second  // one that leaves no room is used for
	warnAt     = 0.8
)

// A Quota limits what workspaces store.
type Quota struct {
	of    Sources
	limit int64 // of workspaces without StorageTag; 0 means no limit

	mu   sync.Mutex
	seen map[string]*standing
}

// A standing is what is known of a workspace. The database is not read while mu is held: each batch
// of metrics asks.
type standing struct {
	mu        sync.Mutex
	room      Room
	limited   time.Time // when the limit was read
	counted   time.Time // when the size was measured
	forgotten int       // how often Forget was called
	stale     bool      // Forget was called since the measurement began
	measuring *measurement
}

// A measurement of the size of a workspace, which goes on.
type measurement struct {
	done chan struct{}
	err  error // once it is done
}

// Room is what a workspace stores, and its limit.
type Room struct {
	Used, Limit int64 // Limit 0 means no limit; Used is not measured then
}

// NewQuota limits the workspaces of a server.
func NewQuota(s Sources, limit int64) *Quota {
	return &Quota{of: s, limit: limit, seen: map[string]*standing{}}
}

// Room returns how a workspace stands. The size was true a minute ago, or when Room was last called
// if that is longer ago. Only the first callers wait until it is measured, and those who call after
// Forget while there is no room.
func (q *Quota) Room(ctx context.Context, workspace string) (Room, error) {
	s := q.standing(workspace)
	if err := q.readLimit(ctx, s, workspace); err != nil {
		return Room{}, err
	}
	for {
		s.mu.Lock()
		room, m, old, full := s.room, s.measuring, time.Since(s.counted), s.room.Used >= s.room.Limit
		wait := s.counted.IsZero() || s.stale && full
		if room.Limit == 0 || !wait && !s.stale && (old <= fullFor || old <= measureFor && !full) {
			s.mu.Unlock()
			return room, nil
		}
		if m == nil {
			m = &measurement{done: make(chan struct{})}
			s.measuring = m
			go q.measure(context.WithoutCancel(ctx), s, m, workspace, s.forgotten)
		}
		s.mu.Unlock()
		if !wait {
			return room, nil
		}
		select {
		case <-m.done:
		case <-ctx.Done():
			return Room{}, ctx.Err()
		}
		if m.err != nil {
			return Room{}, m.err
		}
	}
}

// Limit is how many bytes a workspace may store, 0 for no limit.
func (q *Quota) Limit(ctx context.Context, workspace string) (limit int64, err error) {
	err = q.of.DB.View(ctx, func(tx *store.Tx) error {
		limit, err = q.limitOf(tx, workspace)
		return err
	})
	return limit, err
}

func (q *Quota) standing(workspace string) *standing {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.seen[workspace]
	if s == nil {
		s = &standing{}
		q.seen[workspace] = s
	}
	return s
}

// readLimit reads the limit if that was not done lately. Others use the old one meanwhile, if there
// is one.
func (q *Quota) readLimit(ctx context.Context, s *standing, workspace string) error {
	s.mu.Lock()
	now, last := time.Now(), s.limited
	due := now.Sub(last) > limitFor
	if due && !last.IsZero() {
		s.limited = now
	}
	s.mu.Unlock()
	if !due {
		return nil
	}
	limit, err := q.Limit(ctx, workspace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.limited = last
		return err
	}
	s.room.Limit, s.limited = limit, now
	return nil
}

// measure measures the size of a workspace, of which Forget was called some times before.
func (q *Quota) measure(ctx context.Context, s *standing, m *measurement, workspace string, forgotten int) {
	n, err := q.used(ctx, workspace)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.measuring, m.err = nil, err; err == nil {
		s.room.Used, s.counted, s.stale = n, time.Now(), s.forgotten != forgotten
	}
	close(m.done)
}

// Forget has the size measured again: something was deleted.
func (q *Quota) Forget(workspace string) {
	s := q.standing(workspace)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten, s.stale, s.limited = s.forgotten+1, true, time.Time{}
}

// limitOf returns the limit in the workspace's tag, else the server's. A tag that is not a number
// is ignored.
func (q *Quota) limitOf(tx *store.Tx, workspace string) (int64, error) {
	d, err := tx.Get("", "workspaces", workspace, "")
	if err != nil {
		return 0, err
	}
	var doc struct{ Tags berth.Tags }
	if err := json.Unmarshal(d.Body, &doc); err != nil {
		return 0, err
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(string(doc.Tags[StorageTag])), 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	return q.limit, nil
}

// used is what a workspace stores.
func (q *Quota) used(ctx context.Context, workspace string) (sum int64, err error) {
	var own locate.Storage
	err = q.of.DB.View(ctx, func(tx *store.Tx) error {
		if own, err = locate.StorageOf(tx, workspace); err != nil {
			return err
		}
		if _, sum, err = tx.StateBytes(workspace, q.of.Tracked...); err != nil {
			return err
		}
		for _, container := range []string{own.Blobs, own.Artifacts} {
			n, err := tx.BlobBytes(container)
			if err != nil {
				return err
			}
			sum += n
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, container := range []string{own.Blobs, own.Artifacts} {
		_, n, err := q.of.Blobs.Staged(container)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	files, err := q.of.Points.of(own)
	for _, f := range files {
		sum += f.Size()
	}
	return sum, err
}

// Full returns an error if the workspace has no room left.
func (r Room) Full(workspace string) error {
	if r.Limit == 0 || r.Used < r.Limit {
		return nil
	}
	return berth.Errorf(berth.Limit, "workspace %s stores %s; the limit is %s. `berth storage` shows what takes space and `berth storage clean` frees it; "+
		"for runs and metrics, delete runs, then use `berth storage clean --kind metrics --older 0m --yes`. Or ask an administrator to raise the limit",
		workspace, amount(r.Used), amount(r.Limit))
}

// Warning is what to say when little room is left, else "".
func (r Room) Warning(workspace string) string {
	if r.Limit == 0 || float64(r.Used) < warnAt*float64(r.Limit) {
		return ""
	}
	return fmt.Sprintf("workspace %s uses %s of its limit of %s; when it is full it accepts no more jobs, runs, metrics and artifacts", workspace, amount(r.Used), amount(r.Limit))
}

func amount(n int64) string {
	if n < 1e6 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	if n < 1e9 {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
