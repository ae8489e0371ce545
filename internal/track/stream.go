package track

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/berthml/berth/internal/track/points"
)

// Streams says whether the answer to a request goes on until its run has ended: its context has to
// end with the server and with the caller's credentials.
func Streams(method, path string) bool {
	r, _, err := routeOf(method, path)
	return err == nil && r.streams
}

// streamsOfUser is how many runs a user may watch at a time: each new point is sent to all who
// watch its run.
const streamsOfUser = 32

// statusPause is how often the run of a stream is looked at: whether it has ended.
const statusPause = 250 * time.Millisecond

// streamMetrics sends the points that a run has and those that come, as server-sent events, until
// the run has ended. A point may come twice.
func streamMetrics(c *call) (any, error) {
	id := c.runID()
	if err := c.done(); err != nil {
		return nil, err
	}
	if _, err := c.runOf(id); err != nil {
		return nil, err
	}
	done, ok := c.s.streams.try(c.who.User)
	if !ok {
		return nil, refuse(crowded, "You watch the metrics of %d runs already, which is the most at a time: end one of these streams first", streamsOfUser)
	}
	defer done()
	watch, err := c.points.Watch(id)
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusOK)
	if err := c.past(id, watch); err != nil {
		return nil, c.endStream(err)
	}
	tick := time.NewTicker(statusPause)
	defer tick.Stop()
	for {
		status, err := c.ended(id)
		if err != nil {
			return nil, c.endStream(err)
		}
		sent, err := c.sendAdded(watch) // after the look at the run: what it logged before it ended is there
		c.flush()
		switch {
		case err != nil:
			return nil, c.endStream(err)
		case status != "" && sent == 0:
			fmt.Fprintf(c.w, "event: ended\ndata: {\"status\":%q}\n\n", status)
			c.flush()
			return nil, nil
		}
		select {
		case <-watch.Ready:
		case <-tick.C:
		case <-c.ctx.Done():
			return nil, nil
		}
	}
}

// past sends what the run has, and between pieces of it what comes meanwhile.
func (c *call) past(id string, watch *points.Watch) error {
	for _, s := range c.points.Latest(id) {
		r, err := c.reader(id, s.Key)
		if err != nil {
			return err
		}
		err = c.pieces(r, func(p []points.Point) (bool, error) {
			for _, q := range p {
				c.sendPoint(s.Key, q)
			}
			_, err := c.sendAdded(watch)
			return true, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sendAdded sends what came since a watch was asked last, and says how many points that were.
func (c *call) sendAdded(watch *points.Watch) (int, error) {
	added, err := watch.Take()
	for _, e := range added {
		c.sendPoint(e.Key, e.Point)
	}
	return len(added), err
}

// ended is the status of a run that has ended, "" where it goes on.
func (c *call) ended(id string) (string, error) {
	if err := c.catchUp(c.ctx); err != nil {
		return "", err
	}
	r := c.run(id)
	switch {
	case r == nil:
		return "", noRun(id)
	case r.Status == running || r.Status == "SCHEDULED":
		return "", nil
	}
	return r.Status, nil
}

func (c *call) sendPoint(key string, p points.Point) {
	b, err := json.Marshal(viewOf(key, p))
	if err == nil {
		fmt.Fprintf(c.w, "data: %s\n\n", b) // a client that has gone ends the request's context
	}
}

// endStream says why a stream ends that should not, as far as that is the client's business.
func (c *call) endStream(why error) error {
	f, known := faultOf(why)
	if !known && c.ctx.Err() == nil {
		c.s.report("tracking: a stream broke off", c.r, why)
	}
	b, err := json.Marshal(map[string]string{"message": f.Message})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.w, "event: error\ndata: %s\n\n", b)
	c.flush()
	return nil
}

func (c *call) flush() {
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
}
