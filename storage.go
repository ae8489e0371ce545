package berth

import "time"

// StorageUse is what takes space in a workspace's own storage, by group. Azure has no equivalent.
type StorageUse struct {
	By []string `json:"by"`
	// Groups have one line each, the largest first.
	Groups []StorageLine `json:"groups"`
	Total  StorageLine   `json:"total"`
	// Limit is how many bytes the workspace may store; 0 is no limit, and where several are shown.
	Limit int64 `json:"limit,omitempty"`
}

// StorageLine is the use of one group. Only the keys it was grouped by are set.
type StorageLine struct {
	Kind      string `json:"kind,omitempty"` // a StorageKind
	User      string `json:"user,omitempty"`
	Job       string `json:"job,omitempty"`
	Age       string `json:"age,omitempty"`       // "day", "week", "month", "quarter" and "older": since when it is there
	Workspace string `json:"workspace,omitempty"` // as GROUP/NAME; grouped by it, all workspaces count
	// Files and Bytes count every name. Content that several names share is stored once.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// OwnBytes is content that no other group has: what is freed when the whole group is deleted.
	OwnBytes int64 `json:"ownBytes"`
}

// The kinds of what is stored.
const (
	StorageOutputs      = "outputs"      // of jobs
	StorageArtifacts    = "artifacts"    // of runs: what jobs left in ./outputs, and what was logged
	StorageLogs         = "logs"         // of jobs
	StorageRuns         = "runs"         // experiments, runs and models as tracking knows them: parameters, tags, datasets
	StorageMetrics      = "metrics"      // points of the metrics of runs and logged models
	StorageCode         = "code"         // snapshots that jobs ran
	StorageData         = "data"         // registered
	StorageModels       = "models"       // registered
	StorageEnvironments = "environments" // build contexts
	StorageUploads      = "uploads"      // that nothing registered consists of
	StorageOther        = "other"
)

// StorageKinds are those that can be cleaned by age: what belongs to jobs that have ended, deleted
// runs and logged models with their points and files (metrics), and versions that nothing refers
// to.
var StorageKinds = []string{StorageOutputs, StorageArtifacts, StorageLogs, StorageMetrics, StorageCode, StorageModels, StorageEnvironments}

// CleanStorage requests the deletion of files of jobs that ended before a time, of runs that were
// deleted before, and of versions that were written before.
type CleanStorage struct {
	Kinds  []string  `json:"kinds"`
	Before time.Time `json:"before"`
	// Everyone means the jobs of all users, which only administrators may clean.
	Everyone bool `json:"everyone,omitempty"`
	// DryRun only says what would be deleted.
	DryRun bool `json:"dryRun,omitempty"`
}

// CleanedStorage is what was deleted, or would be.
type CleanedStorage struct {
	DryRun bool  `json:"dryRun"`
	Jobs   int64 `json:"jobs"`
	Files  int64 `json:"files"`
	Bytes  int64 `json:"bytes"`
	// Versions is how many versions of code, models and environments.
	Versions int64 `json:"versions,omitempty"`
	// Runs is how many runs and logged models were removed.
	Runs int64 `json:"runs,omitempty"`
	// Kept is what is old enough but kept, by reason.
	Kept []KeptStorage `json:"kept"`
}

// KeptStorage is what is kept for one reason.
type KeptStorage struct {
	Reason string `json:"reason"`
	Jobs   int64  `json:"jobs"`
	Files  int64  `json:"files"`
	// Versions is how many versions, where the reason is one of versions.
	Versions int64 `json:"versions,omitempty"`
	// Runs is how many runs and logged models, where the reason is one of these.
	Runs int64 `json:"runs,omitempty"`
}

// Why something old is kept, as far as several parts of the server say so.
const (
	KeptTag  = "it has the tag " + KeepTag
	KeptUse  = "a job that has not ended uses it"
	KeptHeld = "it belongs to a registered model or data asset"
)

// KeepTag is the tag of a job whose files no clean-up deletes when its value is "true".
const KeepTag = "berth.keep"

// EventStorage reports what was deleted of a job because of its age.
const EventStorage = "storage.cleaned"
