package app

import (
	"context"
	"net/http"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/serve"
	"github.com/berthml/berth/internal/serve/gateway"
	"github.com/berthml/berth/internal/serve/worker"
	"github.com/berthml/berth/internal/store"
)

// openGateway makes what answers for online endpoints.
func (a *App) openGateway(authority *auth.Authority) {
	a.gateway = gateway.New(gateway.Options{
		DB: a.db, Log: a.log, Token: a.keys.CheckEndpoint, Secret: a.keys.ReplicaSecret,
		Demand: a.demand,
		Keys:   func(d *store.Doc) ([]string, error) { return a.api.EndpointKeys(d) },
		User: func(r *http.Request) (auth.Principal, error) {
			return authority.Check(r.Context(), auth.Bearer(r.Header.Get("Authorization")), time.Now())
		},
	})
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
		Secret: a.keys.ReplicaSecret,
	})
}

// replica is what the process of a replica finds in its environment.
func (a *App) replica(job string) map[string]string {
	return map[string]string{serve.SourceVariable: worker.Source, serve.SecretVariable: a.keys.ReplicaSecret(job)}
}
