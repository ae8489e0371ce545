package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// loadResult is what `berth endpoint load` measured.
type loadResult struct {
	Requests    int                   `json:"requests"`
	Seconds     float64               `json:"seconds"`
	Rate        float64               `json:"rate"`
	Late        int                   `json:"late,omitempty"` // requests that no client was free to send in time
	Statuses    map[string]int        `json:"statuses"`
	Deployments map[string]loadSeries `json:"deployments"`
}

type loadSeries struct {
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	P50      float64 `json:"p50Ms"`
	P90      float64 `json:"p90Ms"`
	P99      float64 `json:"p99Ms"`
	Worst    float64 `json:"worstMs"`
}

// loadSample is one request.
type loadSample struct {
	deployment, status string
	took               time.Duration
	failed             bool
}

func endpointLoad(s *session) *cobra.Command {
	var data, deployment, path string
	var rate float64
	var clients int
	var length time.Duration
	cmd := s.ofEndpoint("load NAME [-d DATA]", "Send many requests and show how long they took", oneArg("endpoint"), func(ctx context.Context, c *client.Client, args []string) error {
		if clients < 1 || clients > 1000 {
			return usagef("--concurrency must be a number from 1 to 1000")
		}
		d, err := c.Get(ctx, "onlineEndpoints", args[0])
		if err != nil {
			return err
		}
		body, err := requestData(data)
		if err != nil {
			return err
		}
		if body == nil {
			body = []byte(s.example(ctx, c, d, &request{deployment: deployment}))
		}
		scorer, err := c.Scorer(ctx, d)
		if err != nil {
			return err
		}
		one := func(ctx context.Context) loadSample {
			began := time.Now()
			got, err := scorer.Do(ctx, http.MethodPost, path, deployment, body)
			if err != nil {
				return loadSample{"-", "no answer", time.Since(began), true}
			}
			return loadSample{dash(got.Header.Get(berth.DeploymentHeader)), strconv.Itoa(got.Status), time.Since(began), got.Status/100 != 2}
		}
		r := runLoad(ctx, one, clients, rate, length)
		if s.format.chosen() {
			return s.print(r)
		}
		return s.printLoad(r)
	})
	requestFlags(cmd, &data, &deployment, &path)
	f := cmd.Flags()
	f.Float64Var(&rate, "rate", 0, "requests a second (default: as many as are answered)")
	f.IntVarP(&clients, "concurrency", "c", 8, "requests at once")
	length = 10 * time.Second
	f.Var(spanFlag{&length}, "for", "how long")
	return cmd
}

// runLoad sends requests from several clients until the time is over; with a rate, each at its
// time, so that a slow answer does not hide the ones behind it.
func runLoad(ctx context.Context, one func(context.Context) loadSample, clients int, rate float64, length time.Duration) loadResult {
	turns := make(chan time.Time, clients)
	timed, stop := context.WithTimeout(ctx, length)
	defer stop()
	began := time.Now()
	late := 0
	go func() {
		defer close(turns)
		for n := 0; timed.Err() == nil; n++ {
			at := time.Now()
			if rate > 0 {
				at = began.Add(time.Duration(float64(n) / rate * float64(time.Second)))
				select {
				case <-timed.Done():
					return
				case <-time.After(time.Until(at)):
				}
			}
			select {
			case <-timed.Done():
				return
			case turns <- at:
			}
		}
	}()
	var mu sync.Mutex
	var all []loadSample
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for at := range turns {
				waited := time.Duration(0)
				if rate > 0 {
					waited = max(0, time.Since(at))
				}
				sample := one(ctx)
				sample.took += waited
				mu.Lock()
				all = append(all, sample)
				if waited > time.Second {
					late++
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return sumLoad(all, time.Since(began), late)
}

// sumLoad is what samples come to.
func sumLoad(all []loadSample, took time.Duration, late int) loadResult {
	r := loadResult{
		Requests: len(all), Seconds: took.Seconds(), Rate: float64(len(all)) / took.Seconds(), Late: late,
		Statuses: map[string]int{}, Deployments: map[string]loadSeries{},
	}
	by := map[string][]time.Duration{}
	failed := map[string]int{}
	for _, x := range all {
		r.Statuses[x.status]++
		by[x.deployment] = append(by[x.deployment], x.took)
		if x.failed {
			failed[x.deployment]++
		}
	}
	for name, times := range by {
		slices.Sort(times)
		at := func(share float64) float64 {
			return float64(times[min(len(times)-1, int(share*float64(len(times))))].Microseconds()) / 1000
		}
		r.Deployments[name] = loadSeries{Requests: len(times), Errors: failed[name], P50: at(0.5), P90: at(0.9), P99: at(0.99), Worst: at(1)}
	}
	return r
}

func (s *session) printLoad(r loadResult) error {
	s.say("%d requests in %.1f s, %.1f a second", r.Requests, r.Seconds, r.Rate)
	if r.Late > 0 {
		s.say("%d requests were sent more than a second late: raise --concurrency", r.Late)
	}
	for _, status := range sortedKeys(r.Statuses) {
		if status != "200" {
			s.say("%d answered with %s", r.Statuses[status], status)
		}
	}
	t := table{header: []string{"DEPLOYMENT", "REQUESTS", "ERRORS", "P50", "P90", "P99", "WORST"}}
	for _, name := range sortedKeys(r.Deployments) {
		d := r.Deployments[name]
		t.add(cell{name, bold}, cell{fmt.Sprint(d.Requests), ""}, cell{fmt.Sprint(d.Errors), ""}, cell{latency(d.P50), ""}, cell{latency(d.P90), ""}, cell{latency(d.P99), ""}, cell{latency(d.Worst), ""})
	}
	return s.printRows(t)
}
