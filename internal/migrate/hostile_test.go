package migrate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/migrate"
)

const aRun = "0123456789abcdef0123456789abcdef"

// fake is a server that says it is one of MLflow. It has an experiment with a run, and answers
// otherwise where it is told to.
func fake(t *testing.T, answers map[string]http.HandlerFunc) string {
	t.Helper()
	usual := map[string]any{
		"experiments/search":       obj{"experiments": []obj{{"experiment_id": "1", "name": "e"}}},
		"runs/search":              obj{"runs": []obj{{"info": obj{"run_id": aRun, "run_name": "r", "status": "FINISHED", "start_time": 1}, "data": obj{"metrics": []obj{{"key": "m", "value": 1}}}}}},
		"metrics/get-history":      obj{"metrics": []obj{{"key": "m", "value": 1, "timestamp": 1, "step": 1}}},
		"registered-models/search": obj{"registered_models": []obj{{"name": "M"}}},
		"model-versions/search":    obj{"model_versions": []obj{{"version": "1", "source": "s3://b/x"}}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/"), "/")
		if answer := answers[call]; answer != nil {
			answer(w, r)
			return
		}
		out, ok := usual[call]
		if !ok {
			out = obj{}
		}
		fmt.Fprint(w, text(out))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func hostile(t *testing.T, patience time.Duration, answers map[string]http.HandlerFunc) (migrate.Counts, error) {
	t.Helper()
	from, err := migrate.Server(fake(t, answers), "", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	n, said, err := newSpace(t).bring(from)
	for _, line := range said {
		if len(line) > 3000 {
			t.Errorf("%d bytes are told: %.100q", len(line), line)
		}
	}
	return n, err
}

// endless writes the same again and again until nobody takes it.
func endless(begin, again string) http.HandlerFunc {
	block := []byte(strings.Repeat(again, 1<<20/len(again)))
	return func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = w.Write(block)
		}
	}
}

// says answers with JSON.
func says(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text(v)) }
}

// TestSourceWithoutEnd: a server that sends without end is left, and the rest is imported.
func TestSourceWithoutEnd(t *testing.T) {
	files := says(obj{"files": []obj{{"path": "f", "file_size": 3}}})
	fresh := func() func() string {
		n := 0
		return func() string { n++; return fmt.Sprint("token", n) }
	}
	for name, c := range map[string]struct {
		call   string
		answer http.HandlerFunc
		says   string // of what is left
		runs   int
	}{
		"runs in one answer":  {"runs/search", endless(`{"runs": ["`, "x"), "runs of experiment e: the response of .* is too long: it has more than 128 MiB; delete what is not needed there", 0},
		"spaces":              {"runs/search", endless(``, " "), "it has more than 128 MiB", 0},
		"an error":            {"runs/search", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); endless("", "x")(w, r) }, "answered 500", 0},
		"the same page":       {"runs/search", says(obj{"next_page_token": "t"}), "runs of experiment e: the list of runs does not end: page 2 has the token of an earlier page; check that --from is an MLflow server", 0},
		"the same points":     {"metrics/get-history", says(obj{"metrics": []obj{{"key": "m", "value": 1, "timestamp": 1}}, "next_page_token": "t"}), "points of metric m of run " + aRun + ": the list of points does not end", 1},
		"the same versions":   {"model-versions/search", says(obj{"model_versions": []obj{{"version": "1", "source": "s3://b/x"}}, "next_page_token": "t"}), "model M: the list of versions does not end", 1},
		"the same models":     {"registered-models/search", says(obj{"registered_models": []obj{{"name": "M"}}, "next_page_token": "t"}), "registered models: the list of registered models does not end", 1},
		"pages with nothing":  {"logged-models/search", nil, "logged models of experiment e: the list of models does not end: 100 pages in a row have nothing", 1},
		"folders in folders":  {"artifacts/list", nil, "files of run " + aRun + ": the folder \"a/a.* is more than 100 folders deep; copy its files by hand", 1},
		"a longer file":       {"get-artifact", endless("", "x"), "file f of run " + aRun + ": it has more bytes than the 3 that the MLflow server has listed", 1},
		"a name without end":  {"runs/search", says(obj{"runs": []obj{{"info": obj{"run_id": strings.Repeat("r", 1<<20)}}}}), "run rrr", 0},
		"a number of a point": {"metrics/get-history", says(obj{"metrics": []any{json.Number(strings.Repeat("1", 1<<20))}}), "points of metric m.* is not as MLflow's: .*; check that --from is an MLflow server", 1},
		"a run of lists":      {"runs/search", says(obj{"runs": []obj{{"info": obj{"run_id": aRun}, "outputs": obj{"model_outputs": make([]int, 1_000_001)}}}}), "run " + aRun + ": its lists have more than 1000000 elements; copy it by hand", 0},
	} {
		t.Run(name, func(t *testing.T) {
			switch next := fresh(); c.call {
			case "logged-models/search":
				c.answer = func(w http.ResponseWriter, r *http.Request) { says(obj{"next_page_token": next()})(w, r) }
			case "artifacts/list":
				c.answer = func(w http.ResponseWriter, r *http.Request) {
					folder := r.URL.Query().Get("path")
					says(obj{"files": []obj{{"path": strings.TrimPrefix(folder+"/a", "/"), "is_dir": true}}})(w, r)
				}
			}
			answers := map[string]http.HandlerFunc{c.call: c.answer}
			if c.call == "get-artifact" {
				answers["artifacts/list"] = files
			}
			n, err := hostile(t, migrate.Patience, answers)
			if err != nil || len(n.NotImported) != 1 || n.Runs != c.runs || !matches(n.NotImported[0], c.says) {
				t.Errorf("%v, %d runs, not imported: %.300q", err, n.Runs, n.NotImported)
			}
		})
	}
}

// matches reports whether a text has the parts of another, which has ".*" between them.
func matches(s, parts string) bool {
	for part := range strings.SplitSeq(parts, ".*") {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// TestSilentSource: an import ends where the server does not answer, or stops in an answer or in a
// file.
func TestSilentSource(t *testing.T) {
	quiet := func(begin string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil { // or nobody sees that the client has gone
				return
			}
			if begin != "" {
				fmt.Fprint(w, begin)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}
	}
	for name, answers := range map[string]map[string]http.HandlerFunc{
		"no answer":       {"experiments/search": quiet("")},
		"half an answer":  {"runs/search": quiet(`{"runs": [`)},
		"no file":         {"artifacts/list": says(obj{"files": []obj{{"path": "f", "file_size": 3}}}), "get-artifact": quiet("")},
		"half a history":  {"metrics/get-history": quiet(`{"metrics": [{"key": "m"}`)},
		"half a file":     {"artifacts/list": says(obj{"files": []obj{{"path": "f", "file_size": 3}}}), "get-artifact": quiet("x")},
		"an error's text": {"runs/search": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); quiet("x")(w, r) }},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := hostile(t, 300*time.Millisecond, answers)
			if berth.CodeOf(err) != berth.Unavailable || !strings.Contains(err.Error(), "took more than 300ms") {
				t.Errorf("%v, %+v", err, n)
			}
		})
	}
}

// TestLostSource: a file that breaks off is read again, and a source that goes away is named: not
// the server that it is imported into.
func TestLostSource(t *testing.T) {
	tries := 0
	answers := map[string]http.HandlerFunc{
		"artifacts/list": says(obj{"files": []obj{{"path": "f", "file_size": 1000}}}),
		"get-artifact": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			whole := bytes.Repeat([]byte("x"), 1000)
			if tries++; tries < 3 {
				whole = whole[:500]
			}
			w.Write(whole)
		},
	}
	if n, err := hostile(t, migrate.Patience, answers); err != nil || n.LeftBehind > 0 || n.Bytes != 1000 || tries != 3 {
		t.Errorf("%v, %+v after %d tries", err, n, tries)
	}
	tries = -1000
	if _, err := hostile(t, migrate.Patience, answers); err == nil || !strings.Contains(err.Error(), "reading the file f from the MLflow server http://") {
		t.Errorf("%v", err)
	}
}

// TestSizesOfFiles: a file with fewer or more bytes than listed is left behind, also if it should
// have none, and one that is listed without a size is imported.
func TestSizesOfFiles(t *testing.T) {
	for name, c := range map[string]struct {
		listed any
		says   string
	}{
		"fewer":   {7, "file f of run " + aRun + ": f has 5 bytes, but the MLflow server has listed 7"},
		"more":    {4, "file f of run " + aRun + ": it has more bytes than the 4 that"},
		"none":    {0, "file f of run " + aRun + ": it has more bytes than the 0 that"},
		"unknown": {nil, ""},
		"right":   {5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := obj{"path": "f"}
			if c.listed != nil {
				file["file_size"] = c.listed
			}
			n, err := hostile(t, migrate.Patience, map[string]http.HandlerFunc{
				"artifacts/list": says(obj{"files": []obj{file}}),
				"get-artifact": func(w http.ResponseWriter, _ *http.Request) {
					w.(http.Flusher).Flush() // without a Content-Length
					fmt.Fprint(w, "12345")
				},
			})
			switch {
			case err != nil:
				t.Error(err)
			case c.says == "" && (n.LeftBehind > 0 || n.Files != 1 || n.Bytes != 5):
				t.Errorf("%+v", n)
			case c.says != "" && (len(n.NotImported) != 1 || !strings.HasPrefix(n.NotImported[0], c.says) || n.Files+int(n.Bytes) > 0):
				t.Errorf("%+v", n)
			}
		})
	}
}

// TestControlCharactersInPaths: a file whose path has the end of a line is left behind, with its
// path in escapes, and the others are imported.
func TestControlCharactersInPaths(t *testing.T) {
	n, err := hostile(t, migrate.Patience, map[string]http.HandlerFunc{
		"artifacts/list": func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Query().Get("path") {
			case "":
				says(obj{"files": []obj{
					{"path": "f", "file_size": 1}, {"path": "a\nb", "file_size": 1}, {"path": "a\rb", "file_size": 1}, {"path": "d\r\n", "is_dir": true},
				}})(w, r)
			default:
				says(obj{"files": []obj{{"path": "d\r\n/g", "file_size": 1}}})(w, r)
			}
		},
		"get-artifact": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") },
	})
	if err != nil || n.Files != 1 || len(n.NotImported) != 3 || !strings.Contains(n.NotImported[0], "its path has control characters, such as ends of lines: rename it there") {
		t.Errorf("%v, %d files, not imported: %q", err, n.Files, n.NotImported)
	}
}
