package app

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/serve/collect"
	"github.com/berthml/berth/internal/serve/gateway"
	"github.com/berthml/berth/internal/serve/worker"
	"github.com/berthml/berth/internal/store"
)

// openGateway makes what answers for online endpoints.
func (a *App) openGateway(authority *auth.Authority) {
	a.samples = collect.New(collect.Options{DB: a.db, Blobs: a.blobs, Locator: a.at, Log: a.log})
	a.gateway = gateway.New(gateway.Options{
		Collect: a.samples.Add,
		DB:      a.db, Log: a.log, Token: a.keys.CheckEndpoint, Secret: a.keys.ReplicaSecret, Reach: a.reachReplica,
		Demand: a.demand, Zone: a.endpointZone(),
		Keys: func(d *store.Doc) ([]string, error) { return a.api.EndpointKeys(d) },
		User: func(r *http.Request) (auth.Principal, error) {
			return authority.Check(r.Context(), auth.Bearer(r.Header.Get("Authorization")), time.Now())
		},
	})
}

// endpointZone is where endpoints have host names.
func (a *App) endpointZone() serve.Zone {
	return serve.Zone{Name: a.cfg.EndpointZone, Home: a.cfg.DefaultWorkspace()}
}

// checkZone refuses a zone in which a name of the server itself would be an endpoint's.
func (a *App) checkZone() error {
	z := a.endpointZone()
	for _, h := range a.hosts() {
		if _, ok := z.Label(h); ok {
			return berth.Errorf(berth.Invalid, "endpoint_zone: %s is a name of the server itself, so that %s cannot be the zone of endpoints: use a domain for them alone, such as score.%s", h, z.Host(), z.Host())
		}
	}
	return nil
}

// demand says that requests wait for a deployment, or come: to the loop of this server, or of the
// one that leads.
func (a *App) demand(workspace, endpoint, deployment string) {
	if t, _ := a.terms.get(); t != nil {
		t.serving.Demand(workspace, endpoint, deployment)
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := a.db.Update(ctx, func(tx *store.Tx) error {
			subject := serve.Collection + "/" + endpoint + "/deployments/" + deployment
			tx.Emit(berth.Event{Workspace: workspace, Subject: subject, Type: berth.EventDemand, Reason: "there are requests at another server"})
			return nil
		})
		if err != nil {
			a.log.Warn("the leader was not told of requests", "endpoint", endpoint, "err", err)
		}
	}()
}

// openServing makes the loop that looks after online deployments.
func (a *App) openServing() *serve.Loop {
	return serve.New(serve.Options{
		DB: a.db, Blobs: a.blobs, Locator: a.at, Log: a.log, Location: a.cfg.Location, NoLocal: a.cfg.Local().Off, Idle: a.gateway.Idle, Load: a.gateway.Stats,
		Secret: a.keys.ReplicaSecret, Reach: a.reachReplica, OnlyServer: a.onlyServer,
	})
}

// onlyServer says whether no other server of the database runs, to which requests for replicas
// could come.
func (a *App) onlyServer(ctx context.Context) bool {
	all, err := a.db.Servers(ctx)
	alive := 0
	for _, s := range all {
		if s.Alive {
			alive++
		}
	}
	return err == nil && alive <= 1
}

// reachReplica connects to a port of the task of a replica on an attached compute. Only the server
// that leads has the connections to those.
func (a *App) reachReplica(ctx context.Context, job string, port int) (net.Conn, error) {
	t, _ := a.terms.get()
	if t == nil {
		return nil, berth.Errorf(berth.Unavailable, "replica %s is reached by the server that leads, which is another", job)
	}
	task, compute, err := a.replicaTask(ctx, job)
	if err != nil {
		return nil, err
	}
	return a.dialTask(ctx, t, task, compute, port)
}

// replicaTask finds the task of a replica, and its compute.
func (a *App) replicaTask(ctx context.Context, job string) (id berth.TaskID, c driver.Compute, err error) {
	err = a.db.View(ctx, func(tx *store.Tx) error {
		tasks, err := tx.ActiveTasks()
		if err != nil {
			return err
		}
		for _, t := range tasks {
			if t.Job != job || !t.Serves || t.State == berth.TaskWaiting {
				continue
			}
			d, err := tx.Get(t.Workspace, "computes", t.Compute, "")
			if err != nil {
				return err
			}
			id, c = t.ID, driver.Compute{Workspace: d.Workspace, Name: d.Name, Body: d.Body}
			return nil
		}
		return berth.Errorf(berth.Unavailable, "replica %s does not run", job)
	})
	return id, c, err
}

// replica is what the process of a replica finds in its environment.
func (a *App) replica(job string) map[string]string {
	return map[string]string{serve.SourceVariable: worker.Source(), serve.SecretVariable: a.keys.ReplicaSecret(job)}
}
