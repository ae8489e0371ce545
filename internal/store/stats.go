package store

import (
	"sync/atomic"
	"time"

	"github.com/berthml/berth/internal/metrics"
)

// stats counts what the writer does.
type stats struct {
	updates, failed atomic.Int64
	commits         metrics.Histogram
}

// served counts a batch of updates that took that long.
func (s *stats) served(updates int, took time.Duration, err error) {
	s.updates.Add(int64(updates))
	s.commits.Observe(took)
	if err != nil {
		s.failed.Add(1)
	}
}

// Metrics writes the store's counters.
func (db *DB) Metrics(w *metrics.Writer) {
	w.One("berth_store_updates_total", metrics.Counter, "Updates of the database; those that come at the same time share a transaction.", float64(db.stats.updates.Load()))
	w.One("berth_store_failures_total", metrics.Counter, "Transactions that could not be committed.", float64(db.stats.failed.Load()))
	w.Begin("berth_store_transaction_seconds", metrics.KindHistogram, "How long transactions of the database took until they were durable.")
	w.Histogram("berth_store_transaction_seconds", &db.stats.commits)
}
