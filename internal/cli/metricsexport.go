package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"

	"github.com/berthml/berth/client"
)

// exportMetrics writes every point of the metrics of runs, one per line.
func (s *session) exportMetrics(ctx context.Context, c *client.Client, runs []*client.Run, keys []string) error {
	write, end := s.pointsAsJSON, func() error { return nil }
	if s.format.name == "csv" {
		w := csv.NewWriter(s.out)
		if err := w.Write([]string{"run_id", "key", "step", "timestamp", "value"}); err != nil {
			return err
		}
		write = func(p client.Point) error {
			return w.Write([]string{p.Run, p.Key, strconv.FormatInt(p.Step, 10), strconv.FormatInt(p.Timestamp, 10), fmt.Sprint(p.Value)})
		}
		end = func() error {
			w.Flush()
			return w.Error()
		}
	}
	// What came before an error is written too.
	return errors.Join(s.eachPoint(ctx, c, runs, keys, write), end())
}

// eachPoint calls fn with every point of the metrics of runs.
func (s *session) eachPoint(ctx context.Context, c *client.Client, runs []*client.Run, keys []string, fn func(client.Point) error) error {
	for _, r := range runs {
		for _, m := range r.Data.Metrics {
			if !wanted(keys, m.Key) {
				continue
			}
			err := c.History(ctx, r.Info.ID, m.Key, func(p client.Point) error {
				p.Run = r.Info.ID
				return fn(p)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *session) pointsAsJSON(p client.Point) error { return jsonLine(s.out, p) }
