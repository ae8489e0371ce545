package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/store/pgtest"
)

// order is the paths of all members of a JSON text, as they come.
func order(t testing.TB, text []byte) []string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	var paths []string
	var value func(at string)
	value = func(at string) {
		tok, err := dec.Token()
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		switch tok {
		case json.Delim('{'):
			for dec.More() {
				key, err := dec.Token()
				if err != nil {
					t.Fatal(err)
				}
				paths = append(paths, at+"/"+key.(string))
				value(at + "/" + key.(string))
			}
		case json.Delim('['):
			for i := 0; dec.More(); i++ {
				value(fmt.Sprint(at, "/", i))
			}
		default:
			return
		}
		if _, err := dec.Token(); err != nil {
			t.Fatal(err)
		}
	}
	value("")
	return paths
}

// kept checks that the members of sent are in got, in the same order; others may be between them.
func kept(t testing.TB, what string, sent string, got []byte) {
	t.Helper()
	want := order(t, []byte(sent))
	all := order(t, got)
	for _, path := range all {
		if len(want) > 0 && path == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("%s: %s is missing or not in its place:\n%s", what, want[0], strings.Join(all, "\n"))
	}
}

// documents are one of each kind with nothing in alphabetical order.
var documents = []struct{ list, path, body string }{
	{"/components/c/versions", "/components/c/versions/1", `{"properties":{"tags":{"z":"1","a":"2"},"componentSpec":{"type":"command","command":"echo ${{inputs.zulu}}",
		"outputs":{"out":{"type":"uri_folder"},"also":{"type":"uri_folder"}},"inputs":{"zulu":{"type":"string","default":"z"},"mike":{"type":"number","optional":true},"alpha":{"type":"uri_file"}}}}}`},
	{"/environments/e/versions", "/environments/e/versions/1", `{"properties":{"tags":{"z":"1","a":"2"},"properties":{"y":"1","b":"2"},"image":"ubuntu:24.04","description":"x"}}`},
	{"/data/d/versions", "/data/d/versions/1", `{"properties":{"tags":{"z":"1","a":"2"},"description":"x","dataUri":"azureml://datastores/workspaceblobstore/paths/x/","dataType":"uri_folder"}}`},
	{"/models/m/versions", "/models/m/versions/1", `{"properties":{"properties":{"z":"1","a":"2"},"modelUri":"azureml://datastores/workspaceblobstore/paths/x","modelType":"custom_model","flavors":{"sklearn":{"data":{"v":"1","b":"2"}},"python":{"data":{}}}}}`},
	{"/computes", "/computes/pool", `{"tags":{"z":"1","a":"2"},"properties":{"properties":{"vmSize":"Standard_DS3_v2","vmPriority":"Dedicated","scaleSettings":{"nodeIdleTimeBeforeScaleDown":"PT5M","minNodeCount":0,"maxNodeCount":2}},"description":"x","computeType":"AmlCompute"},"location":"here"}`},
	{"/data", "/data/whole", `{"properties":{"tags":{"z":"1","a":"2"},"properties":{"y":"1","b":"2"},"description":"x","dataType":"uri_folder"}}`},
	{"/models", "/models/whole", `{"properties":{"tags":{"z":"1","a":"2"},"description":"x"}}`},
	{"/datastores", "/datastores/far", `{"properties":{"tags":{"z":"1","a":"2"},"datastoreType":"AzureBlob","containerName":"x","accountName":"y"}}`},
	{"/jobs", "/jobs/j", jobBody},
	{"/jobs", "/jobs/p", `{"properties":{"settings":{"default_compute":"local"},"jobType":"Pipeline","jobs":{"second":{"type":"command","inputs":{"b":{"value":"1","job_input_type":"literal"},"a":{"value":"2","job_input_type":"literal"}},"componentId":"COMPONENT","computeId":"local"},"first":{"type":"command","inputs":{"b":{"value":"1","job_input_type":"literal"},"a":{"value":"2","job_input_type":"literal"}},"componentId":"COMPONENT","computeId":"local"}},"inputs":{"z":{"value":"1","jobInputType":"literal"},"a":{"value":"2","jobInputType":"literal"}},"experimentName":"x"}}`},
}

const jobBody = `{"properties":{"tags":{"z":"1","a":"2"},"jobType":"Command","environmentVariables":{"Z":"1","A":"2"},"inputs":{"zulu":{"value":"1","jobInputType":"literal"},"alpha":{"value":"2","jobInputType":"literal"}},
	"outputs":{"out":{"mode":"ReadWriteMount","jobOutputType":"uri_folder"},"also":{"mode":"ReadWriteMount","jobOutputType":"uri_folder"}},"experimentName":"x","command":"echo ${{inputs.zulu}}"}}`

const groupBody = `{"tags":{"z":"1","a":"2"},"location":"here"}`

// TestOrderIsKept: documents come back with their members in the order in which they were sent, on
// both stores.
func TestOrderIsKept(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { orderIsKept(t, open(t)) })
	t.Run("postgres", func(t *testing.T) {
		w, err := filewatch.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		server, err := pgtest.Start()
		pgtest.Need(t, err)
		t.Cleanup(server.Stop)
		orderIsKept(t, openOn(t, w, server.URL(), t.TempDir()))
	})
}

func orderIsKept(t *testing.T, x *house) {
	x.do("PUT", x.ws+"/components/step/versions/1", `{"properties":{"componentSpec":{"type":"command","command":"true","inputs":{"b":{"type":"string"},"a":{"type":"string"}}}}}`).want(201)
	for _, c := range documents {
		body := strings.ReplaceAll(c.body, "COMPONENT", x.ws+"/components/step/versions/1")
		kept(t, "PUT "+c.path, body, x.do("PUT", x.ws+c.path, body).raw)
		kept(t, "GET "+c.path, body, x.do("GET", x.ws+c.path, nil).want(200).raw)
		var list struct{ Value []json.RawMessage }
		if err := json.Unmarshal(x.do("GET", x.ws+c.list, nil).want(200).raw, &list); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, item := range list.Value {
			var at struct{ ID string }
			if err := json.Unmarshal(item, &at); err == nil && strings.HasSuffix(at.ID, c.path) {
				found = true
				kept(t, "list "+c.list, body, item)
			}
		}
		if !found {
			t.Errorf("%s is not in %s", c.path, c.list)
		}
	}
	group := strings.Split(x.ws, "/resourceGroups/")[0] + "/resourceGroups"
	for _, a := range []answer{x.do("PUT", group+"/other", groupBody), x.do("GET", group+"/other", nil)} {
		kept(t, "resource group", groupBody, a.raw)
	}
	// What is written over has the order in which it was sent last; what is only added to keeps its
	// own.
	x.do("PUT", x.ws+"/datastores/far", `{"properties":{"accountName":"y","tags":{"a":"2","z":"1"},"containerName":"x","datastoreType":"AzureBlob"}}`).want(200)
	kept(t, "PUT again", `{"properties":{"accountName":"y","tags":{"a":"2","z":"1"},"containerName":"x","datastoreType":"AzureBlob"}}`, x.do("GET", x.ws+"/datastores/far", nil).raw)
	x.do("PATCH", x.ws+"/computes/pool", `{"tags":{"z":"1","a":"2","new":"3"},"properties":{"properties":{"scaleSettings":{"maxNodeCount":3}}}}`).want(200)
	kept(t, "PATCH", documents[4].body, x.do("GET", x.ws+"/computes/pool", nil).raw)
	x.do("PUT", x.ws+"/jobs/j", `{"properties":{"displayName":"x","tags":{"y":"3","a":"2","z":"1"}}}`).want(200)
	kept(t, "edited", jobBody, x.do("GET", x.ws+"/jobs/j", nil).raw)
}

// TestOrderOfAnAdoptedPipeline: a job that is a pipeline component as a whole has its inputs,
// outputs and steps in the component's order.
func TestOrderOfAnAdoptedPipeline(t *testing.T) {
	x := open(t)
	step := x.ws + "/components/step/versions/1"
	x.do("PUT", step, `{"properties":{"componentSpec":{"type":"command","command":"true","inputs":{"n":{"type":"string"}}}}}`).want(201)
	parts := `"inputs":{"zulu":{"type":"string","default":"1"},"mike":{"type":"string","default":"2"},"alpha":{"type":"string","default":"3"}},
		"jobs":{"second":{"type":"command","inputs":{"n":"${{parent.inputs.zulu}}"},"componentId":"STEP"},"first":{"type":"command","inputs":{"n":"${{parent.inputs.alpha}}"},"componentId":"STEP"}}`
	x.do("PUT", x.ws+"/components/whole/versions/1", strings.ReplaceAll(`{"properties":{"componentSpec":{"type":"pipeline",`+parts+`}}}`, "STEP", step)).want(201)
	x.do("PUT", x.ws+"/jobs/p", `{"properties":{"jobType":"Pipeline","settings":{"default_compute":"local"},"componentId":"`+x.ws+`/components/whole/versions/1"}}`).want(201)
	kept(t, "adopted", `{"properties":{"inputs":{"zulu":{},"mike":{},"alpha":{}}}}`, x.do("GET", x.ws+"/jobs/p", nil).want(200).raw)
	kept(t, "adopted", `{"properties":{"jobs":{"second":{},"first":{}}}}`, x.do("GET", x.ws+"/jobs/p", nil).want(200).raw)
}

// BenchmarkListJobs reads all pages of 1000 jobs.
func BenchmarkListJobs(b *testing.B) {
	x := open(b)
	for i := range 1000 {
		x.do("PUT", fmt.Sprint(x.ws, "/jobs/j", i), jobBody).want(201)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for path := x.ws + "/jobs"; path != ""; {
			a := x.do("GET", path, nil)
			var page struct {
				Value    []json.RawMessage
				NextLink string
			}
			if err := json.Unmarshal(a.raw, &page); err != nil {
				b.Fatal(err)
			}
			n += len(page.Value)
			path = strings.TrimPrefix(page.NextLink, "https://127.0.0.1:8443")
		}
		if n != 1000 {
			b.Fatal(n)
		}
	}
}

// BenchmarkPutJob submits a job.
func BenchmarkPutJob(b *testing.B) {
	x := open(b)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		x.do("PUT", fmt.Sprint(x.ws, "/jobs/j", i), jobBody).want(201)
		i++
	}
}
