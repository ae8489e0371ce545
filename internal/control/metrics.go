package control

import "github.com/berthml/berth/internal/metrics"

// Metrics writes what the loop counts.
func (c *Control) Metrics(w *metrics.Writer) {
	w.Begin("berth_control_cycle_seconds", metrics.KindHistogram, "How long cycles of the control loop took, from what happened to what was decided and begun.")
	w.Histogram("berth_control_cycle_seconds", &c.cycles)
}
