package app

import (
	"net/http"
	"time"

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
		Keys: func(d *store.Doc) ([]string, error) { return a.api.EndpointKeys(d) },
		User: func(r *http.Request) (auth.Principal, error) {
			return authority.Check(r.Context(), auth.Bearer(r.Header.Get("Authorization")), time.Now())
		},
	})
}

// openServing makes the loop that looks after online deployments.
func (a *App) openServing() *serve.Loop {
	return serve.New(serve.Options{
		DB: a.db, Blobs: a.blobs, Locator: a.at, Log: a.log, Location: a.cfg.Location, NoLocal: a.cfg.Local().Off, Idle: a.gateway.Idle,
		Secret: a.keys.ReplicaSecret,
	})
}

// replica is what the process of a replica finds in its environment.
func (a *App) replica(job string) map[string]string {
	return map[string]string{serve.SourceVariable: worker.Source, serve.SecretVariable: a.keys.ReplicaSecret(job)}
}
