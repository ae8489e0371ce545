package kubernetes

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/kubeconfig"
)

// clientOf is a client of a server of the test, whose certificate it knows.
func clientOf(t *testing.T, h http.HandlerFunc) *client {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	c, err := newClient(kubeconfig.Cluster{Server: s.URL, Token: "the-token", Namespace: "ml"})
	if err != nil {
		t.Fatal(err)
	}
	tr := s.Client().Transport.(*http.Transport)
	c.http.Transport, c.upgrades.TLSClientConfig = tr, tr.TLSClientConfig.Clone()
	c.upgrades.TLSClientConfig.NextProtos = nil
	return c
}

// TestOtherServers: what a server answers that is no cluster is not passed on, whatever its status.
func TestOtherServers(t *testing.T) {
	for _, status := range []int{200, 400, 401, 403, 404, 409, 500} {
		c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			w.Write([]byte(`{"message":"inner secret","kind":"Other"} inner secret`))
		})
		if _, err := c.version(t.Context()); err == nil || strings.Contains(err.Error(), "inner secret") {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// TestRedirect: the token goes to no other address.
func TestRedirect(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	if _, err := c.version(t.Context()); berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "not followed") {
		t.Errorf("redirected: %v", err)
	}
	if asked {
		t.Error("the other address was asked")
	}
}

// TestCertificate: a cluster that does not show a certificate of its authority is not spoken to.
func TestCertificate(t *testing.T) {
	asked := false
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.StartTLS()
	defer s.Close()
	c, err := newClient(kubeconfig.Cluster{Server: s.URL, Token: "the-token"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.version(t.Context()); berth.CodeOf(err) != berth.Unavailable {
		t.Errorf("a certificate of nobody: %v", err)
	}
	if asked {
		t.Error("it was asked")
	}
}

// TestListInParts: a long list comes in parts, and is begun again when it has become too old.
func TestListInParts(t *testing.T) {
	gone := true
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("continue") == "":
			w.Write([]byte(`{"metadata":{"continue":"x"},"items":[{"metadata":{"name":"a"}}]}`))
		case gone:
			gone = false
			w.WriteHeader(http.StatusGone)
			w.Write([]byte(`{"kind":"Status","message":"too old"}`))
		default:
			w.Write([]byte(`{"items":[{"metadata":{"name":"b"}}]}`))
		}
	})
	all, err := list[job](t.Context(), c, "/x", "", "")
	if err != nil || len(all) != 2 || all[0].Metadata.Name != "a" || all[1].Metadata.Name != "b" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestNotConnected: before the cluster was connected to, nothing is known of it.
func TestNotConnected(t *testing.T) {
	d := &Driver{}
	if _, _, _, err := d.api(); berth.CodeOf(err) != berth.Unavailable {
		t.Error(err)
	}
}

// TestCheck: documents that could never work are refused.
func TestCheck(t *testing.T) {
	doc := func(p string) []byte { return []byte(`{"properties":{"properties":{` + p + `}}}`) }
	for p, want := range map[string]string{
		`"namespace":"a/../b"`:                               "namespace",
		`"serviceAccount":"A"`:                               "serviceAccount",
		`"queueName":"-"`:                                    "queueName",
		`"priorityClass":"x y"`:                              "priorityClass",
		`"imagePullPolicy":"Sometimes"`:                      "imagePullPolicy",
		`"maxTasks":-1`:                                      "maxTasks",
		`"maxTasks":"x"`:                                     "maxTasks",
		`"defaultInstanceType":"x"`:                          "no instance type x",
		`"instanceTypes":{"a":{}},"defaultInstanceType":"x"`: "it has: a",
		`"instanceTypes":{"a":{"resources":{"limits":{"cpu":"much"}}}}`: "must be a quantity",
	} {
		if err := Check(nil, doc(p)); berth.CodeOf(err) != berth.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", p, err, want)
		}
	}
	if err := Check(nil, doc(`"instanceTypes":{"a":{"resources":{"requests":{"cpu":0.5,"memory":"4Gi"}}}},"defaultInstanceType":"A"`)); err != nil {
		t.Error(err)
	}
	if err := Check(doc(`"namespace":"a"`), doc(`"namespace":"b"`)); berth.CodeOf(err) != berth.Conflict {
		t.Errorf("another namespace: %v", err)
	}
}

// TestPodExit tells the ends of pods apart.
func TestPodExit(t *testing.T) {
	for _, x := range []struct{ status, cause, words string }{
		{`{"reason":"Evicted","message":"The node was low on resource: memory."}`, "evicted", "low on resource"},
		{`{"reason":"Evicted","message":"Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."}`, "lost", "exceeds the total limit"},
		{`{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler","message":"preempting to accommodate a higher priority pod"}]}`, "evicted", "higher priority"},
		{`{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByPodGC","message":"PodGC: node no longer exists"}]}`, "evicted", "no longer exists"},
		{`{"reason":"NodeShutdown","message":"Pod was rejected as the node is shutting down."}`, "evicted", "shutting down"},
		{`{"initContainerStatuses":[{"name":"berth-runner","state":{"terminated":{"exitCode":1,"message":"a\nthe program could not be fetched\n"}}}]}`, "staging", "on node n: the program could not be fetched"},
		{`{"containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":95,"message":"a\nberth-runner: the program could not be fetched\n"}}}]}`, "staging", "brought into the pod on node n: the program could not be fetched"},
		{`{"containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":95,"message":"the task cannot be run\n"}}}]}`, "staging", "could not work on node n: the task cannot be run"},
		{`{"containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":1,"message":"berth-runner: not at all\n"}}}]}`, "", "exit code 1"},
		{`{"containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}`, "", "memory"},
		{`{"containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":128,"reason":"StartError","message":"no such file"}}}]}`, "staging", "no such file"},
		{`{"containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown"}}}]}`, "evicted", "lost its container"},
		{`{"containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":3,"reason":"Error"}}}]}`, "", "exit code 3"},
		{`{"reason":"Odd","message":"nobody knows"}`, "lost", "Odd nobody knows"},
	} {
		var p pod
		if err := json.Unmarshal([]byte(`{"spec":{"nodeName":"n"},"status":`+x.status+`}`), &p); err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = "Failed"
		if e := exitOf(&job{}, &p); e.OK() || e.Cause != x.cause || !strings.Contains(e.Reason, x.words) {
			t.Errorf("%s: %+v, want %q and %q", x.status, e, x.cause, x.words)
		}
	}
}

// TestNoFetchForNothing: the events of a namespace are asked for once for any number of Jobs.
func TestNoFetchForNothing(t *testing.T) {
	events := 0
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			events++
			w.Write([]byte(`{"items":[{"involvedObject":{"uid":"1"},"reason":"FailedCreate","message":"exceeded quota"}]}`))
		case strings.HasSuffix(r.URL.Path, "/jobs"):
			w.Write([]byte(`{"items":[{"metadata":{"name":"a","uid":"1"}},{"metadata":{"name":"b","uid":"2"}}]}`))
		default:
			w.Write([]byte(`{}`))
		}
	})
	opened, err := Open(driver.Config{Name: "k8s", Dir: t.TempDir(), Properties: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*Driver)
	d.client = c
	all, err := d.Observe(t.Context())
	if err != nil || len(all) != 2 || !strings.Contains(all[0].Why, "exceeded quota") || events != 1 {
		t.Errorf("%+v, %v; events were asked for %d times", all, err, events)
	}
}

// TestTooMuch: an address that answers without end does not fill the server's memory.
func TestTooMuch(t *testing.T) {
	long := strings.Repeat(" ", maxAnswer) + `{"gitVersion":"v1"}`
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(long)) })
	if _, err := c.version(t.Context()); berth.CodeOf(err) != berth.Invalid {
		t.Errorf("a long answer: %v", err)
	}
	pages := 0
	c = clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		pages++
		w.Write([]byte(`{"metadata":{"continue":"x"},"items":[{}]}`))
	})
	if _, err := list[job](t.Context(), c, "/x", "", ""); berth.CodeOf(err) != berth.Invalid || pages != maxPages {
		t.Errorf("a list without end: %v after %d pages", err, pages)
	}
	c = clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"items":[{}` + strings.Repeat(",{}", pageItems) + `]}`))
	})
	if _, err := list[job](t.Context(), c, "/x", "", ""); err == nil {
		t.Error("a page with more than was asked for")
	}
	if tr := mustClient(t).http.Transport.(*http.Transport); !tr.DisableCompression {
		t.Error("what it sends is decompressed")
	}
}

func mustClient(t *testing.T) *client {
	t.Helper()
	c, err := newClient(kubeconfig.Cluster{Server: "https://h", Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOwnAccount: who uses the server's own account chooses nothing with its rights.
func TestOwnAccount(t *testing.T) {
	for _, p := range []string{`"namespace":"kube-system"`, `"serviceAccount":"berth"`, `"imagePullSecrets":["x"]`, `"priorityClass":"x"`, `"tolerations":[{"operator":"Exists"}]`} {
		s, err := readSite([]byte(`{"properties":{"properties":{` + p + `}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connect(s, "", offer{namespace: "ml"}); berth.CodeOf(err) != berth.Denied {
			t.Errorf("%s: %v", p, err)
		}
	}
	if err := (offer{namespace: "ml"}).check(site{Namespace: "ml"}); err != nil {
		t.Error(err)
	}
	if _, err := offerOf(site{}, t.TempDir(), "true"); berth.CodeOf(err) != berth.Denied {
		t.Errorf("nothing is offered: %v", err)
	}
}

// TestNamedCluster: the operator's kubeconfig of a cluster is used for computes whose resource id
// names it, in its namespace and context only.
func TestNamedCluster(t *testing.T) {
	home := t.TempDir()
	text := `{"current-context": a, contexts: [{name: a, context: {cluster: c, user: u, namespace: ml}}, {name: b, context: {cluster: c, user: u, namespace: kube-system}}],
clusters: [{name: c, cluster: {server: "https://h"}}], users: [{name: u, user: {token: x}}]}`
	if err := os.Mkdir(filepath.Join(home, "kubernetes"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubernetes/lab.kubeconfig", "other.kubeconfig"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(id, properties string) (*client, error) {
		s, err := readSite([]byte(`{"properties":{"resourceId":"` + id + `","properties":{` + properties + `}}}`))
		if err != nil {
			return nil, err
		}
		o, err := offerOf(s, home, "true")
		if err != nil {
			return nil, err
		}
		return connect(s, "", o)
	}
	const lab = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Kubernetes/connectedClusters/Lab"
	for _, properties := range []string{``, `"namespace":"ml"`, `"context":"b"`} {
		if c, err := of(lab, properties); err != nil || c.namespace != "ml" || c.server != "https://h" {
			t.Errorf("%s: %+v, %v", properties, c, err)
		}
	}
	if _, err := of(lab, `"namespace":"kube-system"`); berth.CodeOf(err) != berth.Denied {
		t.Errorf("another namespace: %v", err)
	}
	for _, id := range []string{"/x/none", "/x/..\\/other", "..%2fother", "../other", ".", ""} {
		if _, err := of(id, ``); berth.CodeOf(err) != berth.Denied {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestJobOfSomebodyElse: a Job of the right name that is not ours does not get the launch.
func TestJobOfSomebodyElse(t *testing.T) {
	secrets := 0
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/secrets"):
			secrets++
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusConflict)
			w.Write([]byte(`{"kind":"Status","reason":"AlreadyExists"}`))
		default:
			w.Write([]byte(`{"metadata":{"name":"x","labels":{"berth/compute":"other"}}}`))
		}
	})
	opened, err := Open(driver.Config{Name: "k8s", Dir: t.TempDir(), Properties: []byte(`{"properties":{"properties":{"image":"x"}}}`), Program: func() (string, error) { return "h", nil }})
	if err != nil {
		t.Fatal(err)
	}
	opened.(*Driver).client = c
	if _, err := opened.Start(t.Context(), berth.Launch{Task: "a.1"}); berth.CodeOf(err) != berth.Conflict || secrets > 0 {
		t.Errorf("%v, %d Secrets", err, secrets)
	}
}

// TestEndedBetweenTheLists: a pod that was made and failed between the lists of pods and of Jobs is
// found, so that its task does not run again.
func TestEndedBetweenTheLists(t *testing.T) {
	asked := 0
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/jobs"):
			w.Write([]byte(`{"items":[{"metadata":{"name":"a"},"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}}]}`))
		case asked == 0:
			asked++
			w.Write([]byte(`{}`))
		default:
			w.Write([]byte(`{"items":[{"metadata":{"labels":{"job-name":"a"}},"status":{"phase":"Failed","containerStatuses":[{"name":"task","state":{"terminated":{"exitCode":3}}}]}}]}`))
		}
	})
	opened, err := Open(driver.Config{Name: "k8s", Dir: t.TempDir(), Properties: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	opened.(*Driver).client = c
	if all, err := opened.Observe(t.Context()); err != nil || len(all) != 1 || all[0].Exit == nil || all[0].Exit.Code != 3 {
		t.Errorf("%+v, %v", all, err)
	}
}
