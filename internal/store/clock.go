package store

import (
	"sync/atomic"
	"time"
)

// leastJump is by how much the wall clock must differ from the steady one to have been set.
const leastJump = 2 * time.Second

// jumpPause is how long nothing is tried after the times of what lives could not be moved.
const jumpPause = 5 * time.Second

// A clock is the server's time: that of the wall clock when it was opened, and what has passed
// since. When somebody sets the wall clock, or the machine sleeps, it goes on as if nothing had
// happened, until it is told to follow.
type clock struct {
	wall func() time.Time
	base atomic.Pointer[reading]

	failed time.Time // when the times could not be moved; the writer's
}

// A reading is where the clock stood at a moment, which keeps its monotonic part.
type reading struct {
	at      time.Time // the moment, by time.Now
	time    time.Time // the clock's
	shifted time.Duration
}

func (c *clock) start(wall func() time.Time) {
	if c.wall = wall; wall == nil {
		c.wall = time.Now
	}
	c.base.Store(&reading{at: time.Now(), time: c.wall().UTC().Round(0)})
}

func (c *clock) now() time.Time {
	r := c.base.Load()
	return r.time.Add(time.Since(r.at))
}

// jump is by how much the wall clock was set since the clock last followed it, 0 when it was not.
func (c *clock) jump() time.Duration {
	if d := c.wall().Round(0).Sub(c.now()); d.Abs() >= leastJump {
		return d
	}
	return 0
}

// follow sets the clock by d.
func (c *clock) follow(d time.Duration) {
	r := *c.base.Load()
	r.time, r.shifted = r.time.Add(d), r.shifted+d
	c.base.Store(&r)
}

// Now is the server's time, which does not jump: what lives is dated and measured by it. When the
// wall clock is set, it is first the wall clock that goes its own way; with the next update the
// times of what lives are moved, see OnJump, and Now with them.
func (db *DB) Now() time.Time { return db.clock.now() }

// Jumped reports whether the wall clock was changed and no update has applied the change yet.
func (db *DB) Jumped() bool { return db.onJump.Load() != nil && db.clock.jump() != 0 }

// OnJump has fn move the times of everything that lives by d when the wall clock was set by d. It
// runs before the next update, in the same transaction; if it fails, Now stays as it is, and it is
// tried again. Without a function Now never follows the wall clock.
func (db *DB) OnJump(fn func(tx *Tx, d time.Duration) error) {
	if fn == nil {
		db.onJump.Store(nil)
		return
	}
	if db.member != nil { // the server that led before has moved the times by what it saw: once is enough
		if d := db.clock.jump(); d != 0 {
			db.clock.follow(d)
		}
	}
	db.onJump.Store(&fn)
}

// jumped is the update that takes note of a jump, nil when there was none.
func (db *DB) jumped() *update {
	fn := db.onJump.Load()
	if fn == nil || time.Since(db.clock.failed) < jumpPause || db.clock.jump() == 0 {
		return nil
	}
	return &update{outcome: make(chan outcome, 1), fn: func(tx *Tx) error {
		d := db.clock.jump()
		if d == 0 {
			return nil
		}
		tx.now = tx.now.Add(d)
		if err := (*fn)(tx, d); err != nil {
			db.clock.failed = time.Now()
			db.log.Error("the clock was set, and the times of what lives could not be moved", "by", d, "err", err)
			return err
		}
		tx.jump = d
		return nil
	}}
}

// Shifted is by how much Now was changed in total since the store was opened, including this
// transaction.
func (tx *Tx) Shifted() time.Duration { return tx.shifted + tx.jump }
