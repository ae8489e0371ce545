package mlflow_test

import (
	"encoding/json"
	"net/http"
	"testing"
)

// refused says whether a text is an error as MLflow has it.
func refused(body string) bool {
	var e struct {
		Code    string `json:"error_code"`
		Message string
	}
	return json.Unmarshal([]byte(body), &e) == nil && e.Code != "" && e.Message != ""
}

// differs are the requests that MLflow answers otherwise, and our answers; nothing stands for
// an error.
var differs = map[string]string{
	// MLflow takes 1.5 for 1 and 3000000000 for -1294967296.
	`{"dataframe_split":{"columns":["a","b","c"],"data":[[1,1.5,"x"]]}}`:         "",
	`{"dataframe_records":[{"day":"2026-01-31","bytes":"aGk=","n":3000000000}]}`: "",
	`{"dataframe_records":[1,2]}`:                                                "",
	// It decodes bytes in tables only.
	`{"inputs":[{"day":"2026-01-31","bytes":"aGk=","n":7}]}`: `{"predictions":["2026-01-31T00:00:00 hi 7"]}`,
	// It refuses these.
	`{"dataframe_split":{"data":[[1,1,"x"]]}}`: `{"predictions":[{"sum":2,"word":"X"}]}`,
	"a,b,c\n1,2,3\n": `{"predictions":[6]}`,
	`{"inputs":[{"x":[1,2],"y":1},{"x":[3,4],"y":2}]}`: `{"predictions":{"total":[4,9],"large":[false,true]}}`,
	`{"instances":{"a":1}}`:                            `{"predictions":["a 1"]}`,
}

// TestSameInvocations sends the same requests to the scoring server of MLflow and to our worker,
// and compares status and predictions.
func TestSameInvocations(t *testing.T) {
	r := startReferences(t)
	const csv, text, parquet = "text/csv", "text/plain", "application/vnd.apache.parquet"
	type request struct{ body, kind string }
	wrong := []request{
		{"", ""},
		{``, "application/json"},
		{`not JSON`, ""},
		{deep, ""},
		{`[1]`, ""},
		{`"text"`, ""},
		{`null`, ""},
		{`{}`, ""},
		{`{"columns":["a"],"data":[[1]]}`, ""},
		{`{"input_data":{"columns":["a"],"data":[[1]]}}`, ""},
		{`{"dataframe_split":[1]}`, ""},
		{`{"dataframe_split":null}`, ""},
		{`{"dataframe_split":{"columns":["a","b"],"data":[[1]]}}`, ""},
		{`{"dataframe_split":{"other":1}}`, ""},
		{`{"dataframe_records":{"a":1}}`, ""},
		{`{"dataframe_records":[1,2]}`, ""},
		{`{"dataframe_records":[],"inputs":[]}`, ""},
		{`{"inputs":{"a":[1],"b":[1,2]}}`, ""},
		{`{"instances":{"a":1}}`, ""},
		{`{"inputs":"text"}`, ""},
		{`{"inputs":5}`, ""},
		{`a,b`, text},
		{`x`, parquet},
		{`{"inputs":[[1,2,3]]}`, "application/json; charset=utf-8"},
		{`{"inputs":[[1,2,3]]}`, "application/json; charset=latin-1"},
		{`{"inputs":[[1,2,3]]}`, "application/x-www-form-urlencoded"},
		{"", csv},
		{"\xff\xfe", csv},
		{"\xff\xfe", ""},
	}
	for model, requests := range map[string][]request{
		"columns": {
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[[1.5,1,"x"],[2.5,2,"é"]]}}`, ""},
			{`{"dataframe_split":{"columns":["c","b","a","d"],"index":[7],"data":[["x",1,1.5,0]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[[1,1,"x"]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[["text",1,"x"]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[[1,1.5,"x"]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[[1,null,"x"]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[[null,1,"x"]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[[1,1,5]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b"],"data":[[1,1]]}}`, ""},
			{`{"dataframe_split":{"data":[[1,1,"x"]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[]}}`, ""},
			{`{"dataframe_records":[{"a":1.5,"b":1,"c":"x"},{"c":"y","a":2,"b":2}]}`, ""},
			{`{"dataframe_records":[{"a":1.5,"b":1,"c":"x"},{"c":"y","a":2}]}`, ""},
			{`{"dataframe_records":[]}`, ""},
			{`{"inputs":{"a":[1.5,2],"b":[1,2],"c":["x","y"]}}`, ""},
			{`{"inputs":{"a":1.5,"b":1,"c":"x"}}`, ""},
			{`{"inputs":[{"a":1.5,"b":1,"c":"x"}]}`, ""},
			{`{"instances":[{"a":1.5,"b":1,"c":"x"}]}`, ""},
			{`{"instances":{"a":[1.5],"b":[1],"c":["x"]}}`, ""},
			{`{"instances":[[1.5,1,"x"]]}`, ""},
			{`{"inputs":[[1.5,1,"x"]]}`, ""},
			{`{"dataframe_records":[{"a":1.5,"b":1,"c":"x"}],"params":{"factor":3}}`, ""},
			{`{"dataframe_records":[{"a":1.5,"b":1,"c":"x"}],"params":{"unknown":3}}`, ""},
			{`{"dataframe_records":[{"a":1.5,"b":1,"c":"x"}],"params":{"factor":"three"}}`, ""},
			{`{"dataframe_records":[{"a":1.5,"b":1,"c":"x"}],"params":7}`, ""},
			{`{"dataframe_records":[{"a":1.5,"b":1,"c":"x"}],"other":7}`, ""},
			{"a,b,c\n1.5,1,x\n2,2,y\n", csv},
			{"a,b,c\n1,1,x\n", csv},
			{"a,b,c\n1,1,007\n", csv},
			{"a,b\n1,1\n", csv},
			{"a,b,c\n1,1,x,extra,more\n2\n", csv},
		},
		"matrix": {
			{`{"inputs":[[1,2,3],[4,5,6.5]]}`, ""},
			{`{"instances":[[1,2,3],[4,5,6.5]]}`, ""},
			{`{"inputs":[[1,2],[4,5]]}`, ""},
			{`{"inputs":[[1,2,3],[4,5]]}`, ""},
			{`{"inputs":[["a","b","c"]]}`, ""},
			{`{"inputs":[1,2,3]}`, ""},
			{`{"inputs":{"x":[[1,2,3]]}}`, ""},
			{`{"dataframe_split":{"columns":["a","b","c"],"data":[[1,2,3]]}}`, ""},
			{"a,b,c\n1,2,3\n", csv},
		},
		"named": {
			{`{"inputs":{"x":[[1,2],[3,4]],"y":[1,2]}}`, ""},
			{`{"instances":[{"x":[1,2],"y":1},{"x":[3,4],"y":2}]}`, ""},
			{`{"inputs":[{"x":[1,2],"y":1},{"x":[3,4],"y":2}]}`, ""},
			{`{"instances":{"x":[[1,2],[3,4]],"y":[1,2]}}`, ""},
			{`{"inputs":{"x":[[1,2],[3,4]]}}`, ""},
			{`{"inputs":{"x":[[1,2],[3,4]],"y":["a","b"]}}`, ""},
			{`{"dataframe_split":{"columns":["x","y"],"data":[[[1,2],1]]}}`, ""},
		},
		"bare": {
			{`{"inputs":[[1,2],[3,4]]}`, ""},
			{`{"instances":[1,2.5]}`, ""},
			{`{"inputs":{"p":[1,2],"q":[[1],[2]]}}`, ""},
			{`{"instances":[{"p":1,"q":[1]},{"p":2,"q":[2]}]}`, ""},
			{`{"dataframe_split":{"columns":["p","q"],"index":[3,4],"data":[[1,"x"],[2,"y"]]}}`, ""},
			{`{"dataframe_split":{"data":[[1,"x"]]}}`, ""},
			{`{"dataframe_records":[{"p":1},{"q":2}]}`, ""},
			{`{"dataframe_records":[{"p":1}],"params":{"any":1}}`, ""},
			{"p,q\n1,x\n,y\n", csv},
		},
		"days": {
			{`{"dataframe_split":{"columns":["day","bytes","n"],"data":[["2026-01-31T12:00:00","aGk=",7]]}}`, ""},
			{`{"dataframe_records":[{"day":"2026-01-31","bytes":"aGk=","n":7}]}`, ""},
			{`{"dataframe_records":[{"day":"noon","bytes":"aGk=","n":7}]}`, ""},
			{`{"dataframe_records":[{"day":"2026-01-31","bytes":"aGk=","n":3000000000}]}`, ""},
			{`{"inputs":[{"day":"2026-01-31","bytes":"aGk=","n":7}]}`, ""},
		},
		"odd": {
			{`{"dataframe_records":[{"what":"nan"}]}`, ""},
			{`{"dataframe_records":[{"what":"ragged"}]}`, ""},
			{`{"dataframe_records":[{"what":"none"}]}`, ""},
			{`{"dataframe_records":[{"what":"text"}]}`, ""},
			{`{"dataframe_records":[{"what":"number"}]}`, ""},
			{`{"dataframe_records":[{"what":"series"}]}`, ""},
			{`{"dataframe_records":[{"what":"records"}]}`, ""},
			{`{"dataframe_records":[{"what":"dates"}]}`, ""},
			{`{"dataframe_records":[{"what":"raises"}]}`, ""},
		},
	} {
		t.Run(model, func(t *testing.T) {
			own := r.own(model)
			for _, x := range append(requests, wrong...) {
				kind := x.kind
				if kind == "" && x.body != "" {
					kind = "application/json"
				}
				wantStatus, want := ask(t, "POST", r.real+"/"+model+"/invocations", x.body, kind)
				status, body := ask(t, "POST", own+"/invocations", x.body, kind)
				if wantStatus/100 == 5 { // a caller's mistake all the same
					wantStatus = http.StatusBadRequest
				}
				if wantStatus/100 == 4 && status == wantStatus && refused(body) {
					continue // the words differ
				}
				if ours, ok := differs[x.body]; ok {
					wantStatus, want = http.StatusOK, ours
					if ours == "" && refused(body) {
						wantStatus, want = http.StatusBadRequest, body
					}
				}
				if status != wantStatus || !same(body, want) {
					t.Errorf("%.150s %s:\n  MLflow: %d %.300s\n  ours:   %d %.300s", x.body, kind, wantStatus, want, status, body)
				}
			}
		})
	}
}
