package api

import (
	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/attach"
	"github.com/berthml/berth/internal/space"
	"github.com/berthml/berth/internal/storage/entra"
	"github.com/berthml/berth/internal/track"
)

// services are the parts of the API, one for each area, in the file that has the area's name. Each
// has what it needs; most is kept in documents, which they reach through the store.
type services struct {
	docs       *documentService
	workspaces *workspaceService
	groups     *groupService
	templates  *templateService
	tree       *treeService
	jobs       *jobService
	computes   *computeService
	sizes      *sizeService
	quotas     *quotaService
	quota      *space.Quota
	costs      *costService
	history    *historyService
	indexes    *indexService
	tracking   *trackingService
	identity   *identityService
	runners    *runnerService
	attach     *attachService
	instances  *instanceService
	events     *eventService
	operations *operationService
	work       *workService
	input      *inputService
	metrics    *metricsService
	health     *healthService
}

// assemble creates the services of s.
func (s *Server) assemble() {
	o := &s.Options
	s.docs = &documentService{Locator: o.Locator, db: o.DB, authority: o.Authority, table: table()}
	s.requests = newRequests(s.docs.table)
	s.workspaces = &workspaceService{Locator: o.Locator, db: o.DB, location: o.Location, defaultWorkspace: o.Default}
	s.groups = &groupService{db: o.DB, location: o.Location, docs: s.docs, workspaces: s.workspaces}
	s.templates = &templateService{db: o.DB, location: o.Location, docs: s.docs, groups: s.groups, front: s}
	s.tracking = &trackingService{db: o.DB, log: o.Log, authority: o.Authority, tracking: o.Tracking, workspaces: s.workspaces, front: s}
	s.workspaces.groups = s.groups

	s.health = &healthService{db: o.DB, log: o.Log, blobs: o.Blobs, gate: s.gate, front: s}
	s.events = &eventService{db: o.DB, followers: followers{limit: o.Followers}}
	s.jobs = &jobService{
		db: o.DB, blobs: o.Blobs, watcher: o.Watcher, kindOf: o.KindOf,
		docs: s.docs, workspaces: s.workspaces, events: s.events, health: s.health,
	}
	s.computes = &computeService{db: o.DB, docs: s.docs}
	s.quotas = &quotaService{db: o.DB, quotaDefault: o.QuotaDefault}
	s.sizes = &sizeService{db: o.DB, machine: o.Machine, quotaDefault: o.QuotaDefault, quotas: s.quotas}
	s.costs = &costService{db: o.DB, local: o.Local, location: o.Location, machine: o.Machine}
	sources := space.Sources{DB: o.DB, Blobs: o.Blobs, Points: o.Points, Tracked: track.Kinds()}
	s.quota = space.NewQuota(sources, o.WorkspaceStorage)
	storage := &storageService{workspaces: s.workspaces, tracking: o.Tracking, passOn: o.PassOn, of: sources, quota: s.quota, at: o.Locator}
	s.tree = &treeService{
		defaultWorkspace: o.Default, workspaces: s.workspaces, groups: s.groups, templates: s.templates, docs: s.docs, jobs: s.jobs,
		computes: s.computes, sizes: s.sizes, quotas: s.quotas, costs: s.costs, storage: storage, events: s.events,
	}

	s.indexes = &indexService{db: o.DB, location: o.Location, docs: s.docs, workspaces: s.workspaces}
	s.history = &historyService{
		Locator: o.Locator, db: o.DB, location: o.Location,
		docs: s.docs, workspaces: s.workspaces, jobs: s.jobs, indexes: s.indexes,
	}
	s.identity = &identityService{Locator: o.Locator, log: o.Log, authority: o.Authority, fromTask: o.FromTask, front: s}
	s.runners = &runnerService{
		db: o.DB, log: o.Log, blobs: o.Blobs, authority: o.Authority, programs: programs{find: o.Program, turns: make(chan struct{}, programsAtOnce)},
		samples: newSamples(), requests: s.requests, gate: s.gate, front: s, principals: entra.New(o.Allow.Hosts), relays: newRelays(o.Allow.Hosts),
	}
	s.attach = &attachService{attached: o.Attached, gate: s.gate, front: s}
	s.instances = &instanceService{db: o.DB, authority: o.Authority, front: s}
	s.work = &workService{front: s}
	s.input = &inputService{front: s}
	s.jobs.input = s.input
	s.operations = &operationService{Locator: o.Locator, db: o.DB, docs: s.docs, workspaces: s.workspaces, templates: s.templates}
	s.metrics = &metricsService{db: o.DB, requests: s.requests, more: o.Metrics, workspaces: s.workspaces, events: s.events}
}

// routes is the list of paths and who serves them. Those of route are not here: their names must
// not be cleaned, or are compared without case.
func (s *Server) routes() {
	open, user := s.mux.HandleFunc, func(pattern string, h func(*call) error) { s.mux.Handle(pattern, s.guard(h)) }
	// What a client asks before it has a token.
	open("GET /healthz", s.health.probe)
	open("GET /readyz", s.health.probe)
	open("GET /metadata/endpoints", s.identity.metadata)
	open("GET /discovery", s.identity.discovery)
	open("GET /discovery/", s.identity.discovery)
	open("GET /registrymanagement/v1.0/registries/{name}/discovery", s.identity.noRegistry)
	// The endpoints azure-identity knows: managed identity in its forms, and, below the name of a
	// tenant, a token endpoint for service principals. Each wants the caller's Berth token as
	// proof.
	open("/msi/token", s.identity.identified(s.identity.managed, identityKey))
	open("GET /metadata/identity/oauth2/token", s.identity.identified(s.identity.managedVM, bearerKey))
	open("/", s.identity.tenant)

	user("/tokens", s.identity.tokens)
	user("/tokens/{name}", s.identity.tokens)
	user("GET /berth/v1/server", s.serverInfo)
	user("GET /berth/v1/sizes", s.sizes.listSizes)
	user("/berth/v1/sizes/{name}", s.sizes.oneSize)
	user("GET /berth/v1/environments/curated", s.curatedNames)
	user("GET /berth/v1/events", s.events.allEvents)
	user("GET /metrics", s.metrics.metricsPage)
	user("GET /opstatus/{verb}/{path...}", s.operations.operation)
	user("GET /opresult/{verb}/{path...}", s.operations.result)
	open("/history/v1.0/", s.tracking.historyOr(s.guard(s.history.dataPlane)))
	for _, prefix := range []string{"/data/v1.0/", "/modelregistry/v1.0/", "/mferp/managementfrontend/", "/genericasset/"} {
		user(prefix, s.history.dataPlane)
	}
	user("GET /tenants", s.tree.tenants)
	for _, method := range []string{"GET ", "POST "} {
		open(method+berth.BatchRoot+"{subscription}/{group}/{workspace}/{endpoint}/jobs", s.scoringURI)
	}
	s.subscriptions = s.guard(s.tree.arm)

	// These have credentials of their own kind: a link, a task's token, a machine's.
	open("GET "+openPath+"{code}", s.instances.redeem)
	open("POST "+reportsPath, s.runners.line)
	open(attach.Pattern, s.attach.connect)
	open("GET /runner/v1/programs/{hash}", s.runners.program)
	s.mux.Handle("POST /runner/v1/tasks/{id}/log", s.authenticate(s.runners.appendLog))
	s.mux.Handle("GET /runner/v1/tasks/{id}/input", s.authenticate(s.input.taken))
	s.mux.Handle("POST /runner/v1/tasks/{id}/storage", s.authenticate(s.runners.signStorage))
	open("/runner/v1/tasks/{id}/relay/{pass}", s.runners.relay)
	s.mux.Handle("POST /runner/v1/tasks/{id}/turn", s.authenticate(s.runners.turn))
	s.mux.Handle("POST /runner/v1/tasks/{id}/work", s.work.guard(s.work.work))
	s.mux.Handle("GET /runner/v1/tasks/{id}/rows", s.work.guard(s.work.rows))
}
