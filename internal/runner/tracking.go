package runner

import (
	"os"
	"path/filepath"
)

// trackingVars are what the MLflow client of the command needs to log to the job's run. What the job says itself comes after them.
func (t *task) trackingVars() []string {
	at := t.l.Tracking
	if at == nil {
		return nil
	}
	vars := []string{
		"MLFLOW_TRACKING_URI=" + at.URI,
		"MLFLOW_TRACKING_TOKEN=" + at.Token,
		"MLFLOW_RUN_ID=" + t.l.Job,
		"MLFLOW_EXPERIMENT_NAME=" + at.Experiment,
	}
	if t.l.Home.CA == "" {
		return vars
	}
	ca := filepath.Join(t.o.Dir, "ca.pem") // neither a container nor a job behind the fence has the server's own file
	if err := os.WriteFile(ca, []byte(t.l.Home.CA), 0o600); err != nil {
		t.warn("metrics cannot be logged: " + err.Error())
		return nil
	}
	return append(vars, "MLFLOW_TRACKING_SERVER_CERT_PATH="+ca)
}
