package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/ordered"
	"github.com/berthml/berth/internal/storage"
	"github.com/berthml/berth/internal/store"
)

// listCall is a call for a list.
type listCall struct{ *call }

// list answers with one page of a collection.
func (s *documentService) list(c *call, r *resource, kind, name string) error {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return methodError(c)
	}
	q, err := listCall{c}.query(kind, name)
	if err != nil {
		return err
	}
	top := 0
	if t := c.q.Get("$top"); t != "" {
		if top, err = strconv.Atoi(t); err != nil || top < 1 {
			return berth.Errorf(berth.Invalid, "$top=%s is not a positive number", t)
		}
	}
	if r.NativePaging && name == "" && !c.q.Has("$orderBy") {
		q.Asc = true
	}
	limit := pageSize
	if top > 0 && top < limit {
		limit = top
	}
	if r.ByHash && q.Hash != "" {
		q.Name = "" // the client asks under a new name each time; the hash is looked for everywhere
	}
	q.Limit = limit + 1
	docs, err := s.page(c, r, q, name)
	if err != nil {
		return err
	}
	if len(docs) == 0 && r.Always != nil && name != "" && (q.Archived == nil || !*q.Archived) && q.After == 0 {
		d, ok, err := r.Always(c, name, r.Newest) // the SDK lists versions to find the latest
		if err != nil {
			return err
		}
		if ok {
			docs = append(docs, d)
		}
	}
	more := len(docs) > limit
	docs = docs[:min(len(docs), limit)]
	value, err := listCall{c}.renderAll(r, docs)
	if err != nil {
		return err
	}
	out := map[string]any{"value": value}
	if more && (top == 0 || r.NativePaging) {
		out["nextLink"] = listCall{c}.nextLink(docs[len(docs)-1].ID)
	}
	return c.send(http.StatusOK, out)
}

// page reads as many documents as q says that are wanted, or fewer where there are no more.
func (s *documentService) page(c *call, r *resource, q store.Query, name string) (docs []*store.Doc, err error) {
	err = s.db.View(c.ctx(), func(tx *store.Tx) error {
		if name != "" && q.Hash == "" {
			if _, err := tx.Get(c.ws.Key(), r.Collection, name, ""); err != nil && (r.Child != "versions" || r.NativePaging) {
				return c.missing(err, r, name, "")
			}
		}
		docs = nil
		q := q
		for full := true; full && len(docs) < q.Limit; {
			page, err := tx.List(q)
			if err != nil {
				return err
			}
			full = len(page) == q.Limit
			for _, d := range page {
				q.After = d.ID
				// A hash is what the one who registered the code says of it: others are not given
				// it for theirs.
				if r.ByHash && q.Hash != "" && d.CreatedBy != c.who.User {
					continue
				}
				if (listCall{c}).wanted(r, d) {
					docs = append(docs, d)
				}
			}
		}
		return nil
	})
	return docs, err
}

// renderAll is documents as clients see them, each in the order in which it was sent.
func (c listCall) renderAll(r *resource, docs []*store.Doc) ([]any, error) {
	value := make([]any, 0, len(docs))
	for _, d := range docs {
		m, err := c.render(r, d)
		if err != nil {
			return nil, err
		}
		b, err := ordered.Marshal(m, d.Body)
		if err != nil {
			return nil, err
		}
		value = append(value, json.RawMessage(b))
	}
	return value, nil
}

// pageSize is how many items one page of a list has.
const pageSize = 200

func (c listCall) nextLink(after int64) string {
	q := maps.Clone(c.q)
	q.Set("$skip", strconv.FormatInt(after, 10))
	return c.s.BaseURL + c.r.URL.EscapedPath() + "?" + q.Encode()
}

func (c listCall) query(kind, name string) (store.Query, error) {
	q := store.Query{Workspace: c.ws.Key(), Kind: kind, Name: name, Hash: c.q.Get("hash"), Parent: c.q.Get("parent")}
	yes, no := true, false
	switch strings.ToLower(c.q.Get("listViewType")) {
	case "archivedonly":
		q.Archived = &yes
	case "all":
	default:
		q.Archived = &no
	}
	if v := c.q.Get("$skip"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return q, berth.Errorf(berth.Invalid, "$skip=%s is not a page mark of this server", v)
		}
		q.After = n
	}
	if q.CreatedBy = c.q.Get("createdBy"); strings.EqualFold(q.CreatedBy, "me") {
		q.CreatedBy = c.who.User
	}
	if v := c.q.Get("experimentName"); v != "" && kind == "jobs" {
		q.Parent = v
	}
	if v := c.q.Get("status"); v != "" {
		q.Status = strings.Split(v, ",")
	}
	order := strings.ToLower(c.q.Get("$orderBy"))
	if order == "" {
		order = strings.ToLower(c.q.Get("orderBy"))
	}
	q.Asc = strings.HasSuffix(order, " asc") || strings.EqualFold(c.q.Get("orderByAsc"), "true")
	return q, nil
}

// nameless are the names under which clients keep what has none of its own, each version by its
// hash. They are in no list; Azure lists that of environments.
var nameless = []string{"azureml_anonymous", "CliV2AnonymousEnvironment"}

// wanted applies the filters that are not columns.
func (c listCall) wanted(r *resource, d *store.Doc) bool {
	if d.Version == "" && slices.Contains(nameless, d.Name) && r.Child == "versions" {
		return false
	}
	return r.Wanted == nil || r.Wanted(c.call, d)
}

// asked says whether a property of a document is what the list was asked for, or nothing was.
func (c *call) asked(d *store.Doc, parameter, property string) bool {
	want := c.q.Get(parameter)
	if want == "" {
		return true
	}
	var v struct {
		Properties map[string]any `json:"properties"`
	}
	return json.Unmarshal(d.Body, &v) == nil && strings.EqualFold(text(v.Properties, property), want)
}

// wantedJob leaves out the steps of pipelines, which are listed with their pipeline, and the
// replicas of online deployments.
func wantedJob(c *call, d *store.Doc) bool {
	return !isStep(d) && !isReplica(d) && c.asked(d, "jobType", "jobType") && c.askedTag(d)
}

// askedTag says whether a document has the tag that the list was asked for, NAME or NAME=VALUE, or
// none was.
func (c *call) askedTag(d *store.Doc) bool {
	want := c.q.Get("tag")
	if want == "" {
		return true
	}
	var v struct {
		Properties struct {
			Tags map[string]any `json:"tags"`
		} `json:"properties"`
	}
	if json.Unmarshal(d.Body, &v) != nil {
		return false
	}
	name, value, exact := strings.Cut(want, "=")
	is, ok := v.Properties.Tags[name]
	return ok && (!exact || fmt.Sprint(is) == value)
}

func wantedCompute(_ *call, d *store.Doc) bool {
	return !strings.HasPrefix(strings.ToLower(d.Name), serverlessPrefix)
}

// wantedDatastore leaves out, for Azure's Python clients, the types that are not Azure's: their
// whole list fails at one.
func wantedDatastore(c *call, d *store.Doc) bool {
	if strings.EqualFold(c.q.Get("isDefault"), "true") {
		return strings.EqualFold(d.Name, defaultDatastore)
	}
	if agent := c.r.UserAgent(); !strings.Contains(agent, "azure-ai-ml/") && !strings.Contains(agent, "azsdk-python") {
		return true
	}
	_, p, err := bodyOf(d)
	return err == nil && !storage.Own(text(p, "datastoreType"))
}

func wantedModel(c *call, d *store.Doc) bool {
	if c.q.Get("stage") == "" {
		return true
	}
	var v struct{ Properties struct{ Stage string } }
	return json.Unmarshal(d.Body, &v) == nil && strings.EqualFold(stage(d, v.Properties.Stage), c.q.Get("stage"))
}

func wantedConnection(c *call, d *store.Doc) bool {
	_, p, err := bodyOf(d)
	target := c.q.Get("target")
	return err == nil && c.asked(d, "category", "category") && (target == "" || text(p, "target") == target)
}
