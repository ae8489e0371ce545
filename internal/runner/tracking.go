package runner

import (
	"os"
	"path/filepath"
)

// trackingVars are what the MLflow client of the command needs to log to the job's run. What the job says itself comes after them.
func (t *task) trackingVars(boxed bool) []string {
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
	ca := at.CA
	if (ca == "" || boxed) && t.l.Home.CA != "" { // a container has the task's directory and not the server's
		ca = filepath.Join(t.o.Dir, "ca.pem")
		if err := os.WriteFile(ca, []byte(t.l.Home.CA), 0o600); err != nil {
			t.warn("metrics cannot be logged: " + err.Error())
			return nil
		}
	}
	if ca != "" {
		vars = append(vars, "MLFLOW_TRACKING_SERVER_CERT_PATH="+ca)
	}
	return vars
}
