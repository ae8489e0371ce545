package kubernetes

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// TestLookingHasNoEffects: who removes a task learns its state; what that calls for is done by the
// next look of Observe.
func TestLookingHasNoEffects(t *testing.T) {
	for _, x := range []struct {
		name, spec, status string // of the Job, and the pod
		writes             bool
		state              berth.TaskState
	}{
		{
			"its place in a queue was taken back", `"suspend":true`,
			`"metadata":{"uid":"p","deletionTimestamp":"2026-01-02T03:04:05Z","labels":{"job-name":"a"}},"status":{"phase":"Failed"}`, true, berth.TaskEnding,
		},
		{
			"it did not reach the server", `"suspend":false`,
			`"metadata":{"uid":"p","labels":{"job-name":"a"}},"status":{"phase":"Failed","containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":95,"message":"` + notBrought + `no"}}}]}`, false, berth.TaskDone,
		},
		{
			"it has no image", `"suspend":false`,
			`"metadata":{"uid":"p","labels":{"job-name":"a"}},"status":{"phase":"Pending","containerStatuses":[{"name":"task","state":{"waiting":{"reason":"InvalidImageName"}}}]}`, true, berth.TaskPlaced,
		},
		{
			"it ends", `"suspend":false`,
			`"metadata":{"uid":"p","deletionTimestamp":"2026-01-02T03:04:05Z","labels":{"job-name":"a"}},"status":{"phase":"Running"}`, false, berth.TaskEnding,
		},
	} {
		var writes []string
		job := `{"metadata":{"name":"a","uid":"j","labels":{"` + queueLabel + `":"q"},"annotations":{"` + taskAnnotation + `":"a.1"}},"spec":{` + x.spec + `}}`
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method != http.MethodGet:
				if !strings.HasSuffix(r.URL.Path, "/jobs/a") || r.Method != http.MethodDelete { // which is the removal
					writes = append(writes, r.Method+" "+r.URL.Path)
				}
				w.Write([]byte(`{}`))
			case strings.HasSuffix(r.URL.Path, "/jobs/a"):
				w.Write([]byte(job))
			case strings.HasSuffix(r.URL.Path, "/jobs"):
				w.Write([]byte(`{"items":[` + job + `]}`))
			case strings.HasSuffix(r.URL.Path, "/pods"):
				w.Write([]byte(`{"items":[{` + x.status + `}]}`))
			default:
				w.Write([]byte(`{}`))
			}
		})
		opened, err := Open(driver.Config{
			Name: "k8s", Dir: t.TempDir(), Properties: []byte(`{}`),
			Dial: func(context.Context) (net.Conn, error) { return nil, net.ErrClosed },
		})
		if err != nil {
			t.Fatal(err)
		}
		d := opened.(*Driver)
		d.client = c
		d.tunnels.reached["other"] = true
		err = d.Remove(t.Context(), handle("a"))
		if over := x.state == berth.TaskDone; over && err != nil || !over && berth.CodeOf(err) != berth.Conflict {
			t.Errorf("%s: removed: %v", x.name, err)
		}
		if len(writes) > 0 || !d.tunnels.direct("other") || len(d.stuck) > 0 {
			t.Errorf("%s: removing it wrote %v, and left %v, %v", x.name, writes, d.tunnels.reached, d.stuck)
		}
		all, err := d.Observe(t.Context())
		if err != nil || len(all) != 1 || all[0].State != x.state {
			t.Errorf("%s: observed: %+v, %v", x.name, all, err)
		}
		if (len(writes) > 0) != x.writes || d.tunnels.direct("other") == (x.state == berth.TaskDone) {
			t.Errorf("%s: Observe wrote %v, and left %v", x.name, writes, d.tunnels.reached)
		}
	}
}
