package kubernetes

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
)

// TestOneContainer: a pod has one container where it is known to reach the server, and can do what
// the init container would.
func TestOneContainer(t *testing.T) {
	opened, err := Open(driver.Config{
		Name: "k8s", Dir: t.TempDir(), Properties: []byte(`{}`),
		Dial: func(context.Context) (net.Conn, error) { return nil, net.ErrClosed },
	})
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*Driver)
	d.tunnels.reached["known"] = true
	one := []berth.Launch{{Command: "true"}}
	for _, x := range []struct {
		name string
		s    site
		all  []berth.Launch
		want bool
	}{
		{"nothing is known", site{Image: "other"}, one, false},
		{"an image that has reached it", site{Image: "known"}, one, true},
		{"the environment's image", site{Image: "other"}, []berth.Launch{{Environment: berth.LaunchEnv{Image: "known"}}}, true},
		{"no tunnels", site{Image: "other", Tunnel: "never"}, one, true},
		{"always a tunnel", site{Image: "known", Tunnel: "always"}, one, false},
		{"an image for the runner", site{Image: "known", RunnerImage: "curl"}, one, false},
		{"a gang", site{Image: "known"}, append(one, one...), false},
		{"a long launch", site{Image: "known"}, []berth.Launch{{Command: strings.Repeat("x", maxVariable)}}, false},
	} {
		if got := d.oneContainer(d.way(x.s), x.all); got != x.want {
			t.Errorf("%s: %t", x.name, got)
		}
	}
	d.tunnels.need("they do not reach it")
	if s := d.way(site{Image: "known"}); d.oneContainer(s, one) || s.way() != wayTunnel {
		t.Errorf("when pods need tunnels: %+v", s)
	}
}

// TestDoubtEnds: after one pod that could not fetch the program, later ones have init containers
// for a while, and not for ever: its node may have been the only one.
func TestDoubtEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, err := Open(driver.Config{
			Name: "k8s", Dir: t.TempDir(), Properties: []byte(`{}`),
			Dial: func(context.Context) (net.Conn, error) { return nil, net.ErrClosed },
		})
		if err != nil {
			t.Fatal(err)
		}
		d := opened.(*Driver)
		learn := func(status string) {
			var p pod
			if err := json.Unmarshal([]byte(`{"spec":{"containers":[{"name":"task","image":"known"}]},"status":`+status+`}`), &p); err != nil {
				t.Fatal(err)
			}
			d.learn(&job{}, &p)
		}
		const fetched = `{"phase":"Running","initContainerStatuses":[{"name":"berth-runner","state":{"terminated":{"exitCode":0}}}]}`
		const failed = `{"phase":"Failed","containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":95,"message":"` + notBrought + `no"}}}]}`
		learn(fetched)
		if !d.tunnels.direct("known") {
			t.Error("a pod that has fetched it taught nothing")
		}
		learn(failed)
		learn(fetched)
		if d.tunnels.direct("known") {
			t.Error("a pod that could not fetch it taught nothing")
		}
		time.Sleep(doubtTime)
		learn(fetched)
		if !d.tunnels.direct("known") {
			t.Error("the doubt stays")
		}
	})
}

// TestContainersOfAPod: a pod with one container has its launch in a variable, and of the Secret
// only what says that it is there; one with an init container has it there and nowhere else.
func TestContainersOfAPod(t *testing.T) {
	for _, one := range []bool{true, false} {
		job, err := jobOf(site{Image: "x"}, one, []berth.Launch{{Task: "a.1"}}, "name", "compute", "hash")
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(job)
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			`"initContainers":`: !one, `"name":"BERTH_LAUNCH"`: one, `"items":[{"key":"ready","path":".ready"}]`: one, `"hash","direct"`: one, `"hash","auto"`: !one,
		} {
			if strings.Contains(string(b), text) != want {
				t.Errorf("one container: %t: %s: want %t in %s", one, text, want, b)
			}
		}
		if n := strings.Count(string(b), `"mountPath":"`+launchDir+`"`); n != 1 {
			t.Errorf("one container: %t: %d containers mount the Secret", one, n)
		}
	}
}
