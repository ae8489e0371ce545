package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signing is a server with an MLflow client, and what is sent to addresses that it signed.
type signing struct {
	*server
	t     *testing.T
	admin *tracker
}

func startSigning(t *testing.T) *signing {
	home := shortHome(t)
	s := start(t, home)
	return &signing{s, t, trackerOf(t, map[string]string{
		"MLFLOW_TRACKING_SERVER_CERT_PATH": filepath.Join(home, "tls", "ca.pem"),
		"MLFLOW_TRACKING_URI":              s.app.URL + "/mlflow/v2.0" + s.ws, "MLFLOW_TRACKING_TOKEN": s.app.Token,
	})}
}

// want calls a server's MLflow API and wants it to answer with a status.
func (s *signing) want(k *tracker, status int, method, path string, body any) map[string]any {
	s.t.Helper()
	code, m := k.do(method, path, body)
	if code != status {
		s.t.Fatalf("%s %s %v: %d %v, want %d", method, path, body, code, m, status)
	}
	return m
}

// put sends bytes to an address without a token.
func (s *signing) put(status int, what, address string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPut, address, strings.NewReader("bytes"))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.admin.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != status {
		s.t.Errorf("%s: %s (%s), want %d", what, resp.Status, resp.Header.Get("x-ms-error-code"), status)
	}
}

// parts asks for the address of the one part of an upload.
func (s *signing) parts(k *tracker, folder, name string) (address, id string) {
	s.t.Helper()
	up := s.want(k, 200, "POST", "/api/2.0/mlflow-artifacts/mpu/create/"+folder, map[string]any{"path": name, "num_parts": 1})
	return at(up, "credentials", 0, "url").(string), up["upload_id"].(string)
}

// upload asks for the address of a file of a run, as Azure's plugin does.
func (s *signing) upload(k *tracker, run, name string) string {
	s.t.Helper()
	m := s.want(k, 200, "POST", "/api/2.0/berth/history/"+run+"/artifacts/batch/metadata", map[string]any{"paths": []any{map[string]any{"path": name}}})
	return at(m, "artifactContentInformation", name, "contentUri").(string)
}

// newRun is a run of nobody's job.
func (s *signing) newRun(k *tracker) string {
	s.t.Helper()
	return at(s.want(k, 200, "POST", mlflowAPI+"runs/create", map[string]any{"experiment_id": "0"}), "run", "info", "run_id").(string)
}

// TestSignedAddressIsOfOneFile: what is signed for tracking opens one file, and that only for what
// it was asked for: neither files below its name, nor the file itself where it is for parts.
func TestSignedAddressIsOfOneFile(t *testing.T) {
	s := startSigning(t)
	run := s.newRun(s.admin)
	root := "0/" + run + "/artifacts"
	below := func(address string) string {
		place, query, _ := strings.Cut(address, "?")
		return place + "/model.pkl?" + query
	}
	part, id := s.parts(s.admin, root, "model")
	plain, _, _ := strings.Cut(part, "&comp=")
	s.put(403, "a file below the name of parts", below(plain))
	s.put(403, "a part of a file below", below(part))
	s.put(403, "the file itself by the address of a part", plain)
	s.put(403, "a list of parts by the address of a part", plain+"&comp=blocklist")
	s.put(403, "files below by the address of a part", plain+"&comp=pack")
	s.put(403, "metadata by the address of a part", plain+"&comp=metadata")
	s.put(201, "a part", part)
	parts := []any{map[string]any{"part_number": 1}}
	s.want(s.admin, 200, "POST", "/api/2.0/mlflow-artifacts/mpu/complete/"+root, map[string]any{"path": "model", "upload_id": id, "parts": parts})
	if _, m := s.admin.do("GET", "/api/2.0/mlflow-artifacts/artifacts/"+root+"/model", nil); m["raw"] != "bytes" {
		t.Errorf("the file is %v", m)
	}

	file := s.upload(s.admin, run, "d")
	s.put(403, "a file below", below(file))
	s.put(403, "files below", file+"&comp=pack")
	s.put(403, "files below that are reused", file+"&comp=reuse")
	s.put(201, "a part of a file", file+"&comp=block&blockid=MDAx")
	s.put(201, "a file", file)
	read := at(s.want(s.admin, 200, "GET", "/api/2.0/berth/history/"+run+"/artifacts/contentinfo?path=d", nil), "contentUri").(string)
	s.put(403, "a file that is for reading", read)
	for _, address := range []string{below(read), read + "&comp=tree", below(strings.Replace(read, "/d?", "?", 1))} {
		if code, m := (&tracker{t, address, "", s.admin.http}).do("GET", "", nil); code != 403 {
			t.Errorf("%s: %d %v", address, code, m)
		}
	}
	if code, m := (&tracker{t, read, "", s.admin.http}).do("GET", "", nil); code != 200 || m["raw"] != "bytes" {
		t.Errorf("the file is read as %d %v", code, m)
	}
}

// TestSignedAddressEndsWithItsRun: an address to write at is good for as long as the job, run or
// model that the file belonged to when it was signed. Who has the name later has other files.
func TestSignedAddressEndsWithItsRun(t *testing.T) {
	s := startSigning(t)
	_, m := s.do("POST", "/tokens", map[string]any{"name": "bob", "role": "user"})
	bob := &tracker{t, s.admin.uri, m["token"].(string), s.admin.http}
	arm := &tracker{t, s.app.URL + s.ws, bob.token, bob.http}
	job := func(k *tracker, status int) {
		t.Helper()
		s.want(k, status, "PUT", "/jobs/nightly", map[string]any{"properties": map[string]any{"jobType": "Command", "command": "true", "computeId": s.ws + "/computes/local"}})
	}
	remove := func() { // what bob has deleted
		t.Helper()
		s.want(arm, 200, "POST", "/cleanStorage", map[string]any{"kinds": []string{"metrics"}, "before": time.Now().Add(time.Minute)})
	}
	job(arm, 201)
	s.wait("nightly")
	s.want(bob, 200, "POST", mlflowAPI+"runs/search", map[string]any{"experiment_ids": []any{"0"}}) // shows the run, and does not write it
	part, _ := s.parts(bob, "0/nightly/artifacts", "big.bin")
	file := s.upload(bob, "nightly", "model.pkl")
	s.put(201, "a part of the run of a job", part)
	s.put(201, "a file of the run of a job", file)
	s.want(arm, 202, "DELETE", "/jobs/nightly", nil)
	s.put(403, "a part of the run of a deleted job", part)
	s.put(403, "a file of the run of a deleted job", file)
	left := s.upload(bob, "nightly", "model.pkl")
	s.put(201, "a file of the run that a deleted job left", left)

	admin := &tracker{t, s.app.URL + s.ws, s.admin.token, s.admin.http}
	job(admin, 409) // its run is bob's
	s.want(bob, 200, "POST", mlflowAPI+"runs/delete", map[string]any{"run_id": "nightly"})
	remove()
	s.put(403, "a file of a removed run", left)
	job(admin, 201)
	s.wait("nightly")
	for what, address := range map[string]string{"part": part, "file": file, "file of the run left": left} {
		s.put(403, "another's job by the address of a "+what, address)
	}

	run := s.newRun(bob)
	model := at(s.want(bob, 200, "POST", mlflowAPI+"logged-models", map[string]any{"experiment_id": "0", "name": "m"}), "model", "info", "model_id").(string)
	for _, id := range []string{run, model} {
		address := s.upload(bob, id, "f")
		s.put(201, "a file of "+id, address)
		if id == run {
			s.want(bob, 200, "POST", mlflowAPI+"runs/delete", map[string]any{"run_id": run})
		} else {
			s.want(bob, 200, "DELETE", mlflowAPI+"logged-models/"+model, nil)
		}
		remove()
		s.put(403, "a file of "+id+", which was removed", address)
	}
}

// TestFullWorkspaceTakesNoWrites: what was begun before a workspace was full does not go on: signed
// addresses, uploads in parts, and writes with a token. Jobs that run go on.
func TestFullWorkspaceTakesNoWrites(t *testing.T) {
	s := startSigning(t)
	dir := t.TempDir()
	told, goOn := filepath.Join(dir, "env"), filepath.Join(dir, "go")
	s.submit("runs", "env > "+told+".new; mv "+told+".new "+told+"; while [ ! -e "+goOn+" ]; do sleep 0.05; done; mkdir -p outputs; echo x > outputs/x.txt")
	job := trackerOf(t, s.toldEnv(told))
	defer os.WriteFile(goOn, nil, 0o600)
	limit := func(bytes string) {
		t.Helper()
		if code, m := s.do("PATCH", s.ws, map[string]any{"tags": map[string]any{"berth.storage_bytes": bytes}}); code != 200 {
			t.Fatal(code, m)
		}
		// Deleting has the limit read again at once.
		if code, m := s.do("POST", s.ws+"/cleanStorage", map[string]any{"kinds": []string{"metrics"}, "before": time.Now().Add(-time.Hour)}); code != 200 {
			t.Fatal(code, m)
		}
	}
	run := s.newRun(s.admin)
	root := "0/" + run + "/artifacts"
	part, id := s.parts(s.admin, root, "big.bin")
	file := s.upload(s.admin, run, "f")
	s.put(201, "a part", part)
	s.put(201, "a file", file)
	place, _, _ := strings.Cut(file, "?")
	token := &tracker{t, place, s.admin.token, s.admin.http}
	s.want(token, 201, "PUT", "", "bytes")
	s.want(token, 201, "PUT", "?comp=block&blockid=MDAx", "bytes")

	limit("1")
	s.put(400, "a part", part)
	s.put(400, "a file", file)
	s.want(token, 400, "PUT", "", "bytes")
	s.want(token, 400, "PUT", "?comp=block&blockid=MDAx", "bytes")
	s.want(token, 400, "PUT", "?comp=pack", "bytes")
	parts := []any{map[string]any{"part_number": 1}}
	complete := map[string]any{"path": "big.bin", "upload_id": id, "parts": parts}
	s.want(s.admin, 400, "POST", "/api/2.0/mlflow-artifacts/mpu/complete/"+root, complete)
	s.want(token, 200, "GET", "", nil)
	s.want(token, 202, "DELETE", "", nil)

	s.put(201, "a file of a job that runs", s.upload(job, "runs", "f"))
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, status := s.wait("runs"); status != "Completed" {
		t.Errorf("the job is %v", status)
	}
	files := s.want(s.admin, 200, "GET", mlflowAPI+"artifacts/list?run_id=runs&path=outputs", nil)
	if at(files, "files", 0, "path") != "outputs/x.txt" {
		t.Errorf("the files of the job are %v", files)
	}

	limit("1000000000")
	s.put(201, "a part, in a workspace with room", part)
	s.want(s.admin, 200, "POST", "/api/2.0/mlflow-artifacts/mpu/complete/"+root, complete)
}

// TestContainersOfNobody: what lay in a container of no workspace would be counted for none and
// deleted with none, so nobody can write to one, whatever their token.
func TestContainersOfNobody(t *testing.T) {
	s := startSigning(t)
	place, _, _ := strings.Cut(s.upload(s.admin, s.newRun(s.admin), "f"), "?")
	base, rest, _ := strings.Cut(place, "/azureml-")
	_, name, _ := strings.Cut(rest, "/")
	for _, container := range []string{"mine", "azureml-" + strings.Repeat("0", 8)} {
		at := &tracker{t, base + "/" + container + "/" + name, s.admin.token, s.admin.http}
		for _, ask := range []string{"", "?comp=block&blockid=MDAx", "?comp=pack"} {
			s.want(at, 404, "PUT", ask, "bytes")
		}
		s.want(at, 404, "GET", "", nil)
	}
	s.want(&tracker{t, place, s.admin.token, s.admin.http}, 201, "PUT", "", "bytes")
}
