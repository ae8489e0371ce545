package track_test

import (
	"fmt"
	"testing"
)

// TestURIsNameNoOtherHost: clients send their token to the host of an artifact URI, so nobody may
// give one that others follow.
func TestURIsNameNoOtherHost(t *testing.T) {
	s := start(t, t.TempDir())
	job := s.as(s.addJob("train", "ann", "mine"))
	prompt := []obj{{"key": "mlflow.prompt.is_prompt", "value": "true"}}
	s.must("POST", "registered-models/create", obj{"name": "M"})
	s.must("POST", "registered-models/create", obj{"name": "P", "tags": prompt})
	for i, uri := range []string{
		"http://evil/m", "HTTP://evil/api/2.0/mlflow-artifacts/artifacts/m", "hTTps://evil/m", " http://evil/m", "ht\ttp://evil/m", "\nhttps://evil/m",
		"ftp://evil/m", "sftp://evil/m", "azureml://evil/m", "http://h.evil/api/2.0/mlflow-artifacts/artifacts/m", "http://h@evil/api/2.0/mlflow-artifacts/artifacts/m",
		"abfss://c@evil.example.com/x", "abfss://c@a.dfs.core.windows.net.evil.com/x", "abfss://c@a.dfs.core.windows.net@evil.com/x", "abfss://evil.com/x",
		`abfss://c@evil.com\a.dfs.core.windows.net/x`, "abfss://c@evilcore.windows.net/x", "abfss://c@evil.com:443/x", "abfs://c@evil.com/x",
		"wasb://c@evil.com/x", "WASBS://c@a.evil.com/x", "wasbs://c@evil.com#a.blob.core.windows.net/x", "abfss://c@evil.com%2f.core.windows.net/x",
		"r2://b@evil.com/x", "runs://x@databricks/0123/model", "runs://databricks/0123/model", "models://x@databricks/m/1",
	} {
		for _, who := range []*server{s, job} {
			for _, name := range []string{"M", "P"} {
				who.want(400, "POST", "model-versions/create", obj{"name": name, "source": uri})
			}
			who.want(400, "POST", "model-versions/create", obj{"name": "M", "source": uri, "tags": prompt})
		}
		s.want(400, "POST", "experiments/create", obj{"name": fmt.Sprint("e", i), "artifact_location": uri})
	}
	for i, location := range []string{
		"file://evil/x", "file:////evil/x", "file://localHOST//evil/x", `file:///\evil/x`, "file:///%5Cevil/x", "//evil/x", `\\evil\x`, `/\evil/x`, "%2f/evil/x",
		"mlflow-artifacts://evil/m", "MLFLOW-ARTIFACTS://evil/m", "mlflow-artifacts:/../x", "mlflow-artifacts:/a/b", "mlflow-artifacts:/",
		"mlflow-artifacts:/a?b=c", "mlflow-artifacts:/%2e%2e",
	} {
		s.want(400, "POST", "experiments/create", obj{"name": fmt.Sprint("l", i), "artifact_location": location})
	}
	for i, location := range []string{
		"s3://bucket/x", "gs://b/x", "my_location", "/tmp/x", "file:///tmp/x", "file:/tmp/x", "file://localhost/tmp/x", "file:///C:/x", "mlflow-artifacts:/own", `C:\x`,
		"abfss://c@a.dfs.core.windows.net/x", "wasbs://c@a.blob.core.windows.net/x", "abfss://w@onelake.dfs.fabric.microsoft.com/x", "abfss://c@a.dfs.core.usgovcloudapi.net",
		"wasbs://C@a.blob.core.chinacloudapi.cn/x", "r2://b@account.eu.r2.cloudflarestorage.com/x", "wasbs://c@acct.blob.zone.test:8443/x", "mysql://user:password@host/db?driver=d",
	} {
		s.want(200, "POST", "experiments/create", obj{"name": fmt.Sprint("ok", i), "artifact_location": location})
	}
	// A path of this server is one, however it is written.
	for given, kept := range map[string]string{
		"mlflow-artifacts://host:9000/models":                 "mlflow-artifacts:/models",
		"MLFlow-Artifacts:/models":                            "mlflow-artifacts:/models",
		"https://h/api/2.0/mlflow-artifacts/artifacts/models": "mlflow-artifacts:/models",
		"dbfs:/x": "dbfs:/x", "artifacts:/1/r/artifacts": "artifacts:/1/r/artifacts", "azureml://datastores/d/paths/x": "azureml://datastores/d/paths/x",
	} {
		v := at(s.must("POST", "model-versions/create", obj{"name": "M", "source": given}), "model_version").(obj)
		uri := s.must("GET", "model-versions/get-download-uri?name=M&version="+v["version"].(string), nil)["artifact_uri"]
		if v["source"] != kept || uri != kept {
			t.Errorf("%s is kept as %v, loaded from %v", given, v["source"], uri)
		}
	}
	// A model of the workspace may have any address; clients of MLflow are not sent there.
	s.makeModel("asset", "1", "https://evil/api/2.0/mlflow-artifacts/artifacts/m")
	s.want(400, "GET", "model-versions/get-download-uri?name=asset&version=1", nil)
	// The tag of a version does not make it a prompt.
	s.want(400, "POST", "model-versions/create", obj{"name": "M", "source": "/etc", "tags": prompt})
	s.want(200, "POST", "model-versions/create", obj{"name": "P", "source": "prompt-template"})
}

// TestDefaultIsNotTaken: no experiment takes the name of the default one, written or not.
func TestDefaultIsNotTaken(t *testing.T) {
	s := start(t, t.TempDir())
	id := s.must("POST", "experiments/create", obj{"name": "mine"})["experiment_id"]
	s.want(400, "POST", "experiments/update", obj{"experiment_id": id, "new_name": "Default"})
	if e := s.must("GET", "experiments/get-by-name?experiment_name=Default", nil); at(e, "experiment", "experiment_id") != "0" {
		t.Errorf("Default is %v", e)
	}
	s.must("POST", "experiments/update", obj{"experiment_id": "0", "new_name": "old"})
	s.must("POST", "experiments/update", obj{"experiment_id": id, "new_name": "Default"})
	s.must("POST", "experiments/update", obj{"experiment_id": "0", "new_name": "older"})
	if e := s.must("GET", "experiments/get-by-name?experiment_name=Default", nil); at(e, "experiment", "experiment_id") != id {
		t.Errorf("Default is %v", e)
	}
}
