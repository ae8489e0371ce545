package runner

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// trackingVars are what the MLflow client of the command needs to log to the job's run. What the
// job says itself comes after them.
func (t *task) trackingVars(e *envs.Env) []string {
	at := t.l.Tracking
	if at == nil {
		return nil
	}
	vars := []string{
		"MLFLOW_TRACKING_URI=" + at.URI,
		"MLFLOW_TRACKING_TOKEN=" + at.Token,
		"MLFLOW_EXPERIMENT_NAME=" + at.Experiment,
		berth.NoRunLinks + "=true",
	}
	if strings.Contains(t.l.Job, ".") {
		t.warn("MLflow's clients accept no run id with a dot, as the name of this job has: what it logs is in runs of its own, and not in the job's. Name jobs without dots")
	} else {
		vars = append(vars, "MLFLOW_RUN_ID="+t.l.Job)
	}
	if t.l.Home.CA == "" {
		return vars
	}
	ca, err := t.caFile(e)
	if err != nil {
		t.warn("metrics cannot be logged: " + err.Error())
		return nil
	}
	return append(vars, "MLFLOW_TRACKING_SERVER_CERT_PATH="+ca)
}

// caFile keeps the server's certificate in a file that the command can read: neither a container
// nor a job behind the fence has the server's own, and a container has only what lies in the task's
// directory.
func (t *task) caFile(e *envs.Env) (string, error) {
	if t.o.CAFile != nil && (e == nil || e.Container == nil) {
		return t.o.CAFile(t.l.Home.CA)
	}
	path := filepath.Join(t.o.Dir, "ca.pem")
	return path, os.WriteFile(path, []byte(t.l.Home.CA), 0o600)
}
