package berth

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Provider is the resource provider every workspace resource lives under.
const Provider = "Microsoft.MachineLearningServices"

// A TaskID permanently names one task, across workspaces and across jobs with the same name:
// JOB.MARK.ATTEMPT, and -RANK for all but the first of several.
type TaskID string

// NewTaskKey returns the prefix of the ids of a job's tasks: its name, for people, and a mark that
// no other job will ever have: its position in the order of submission. Ids become file names, so a
// long name is truncated.
func NewTaskKey(job string, place int64) string {
	return job[:min(len(job), 150)] + "." + strconv.FormatInt(place, 36)
}

// Place returns the position of the task's job in the order of submission.
func (id TaskID) Place() int64 {
	key := string(id[:max(0, strings.LastIndexByte(string(id), '.'))])
	place, err := strconv.ParseInt(key[strings.LastIndexByte(key, '.')+1:], 36, 64)
	if err != nil {
		return 0 // no id of ours; it goes first
	}
	return place
}

// Attempt returns the attempt and the rank that the id names, both 0 if it is not one of our ids.
func (id TaskID) Attempt() (attempt, rank int) {
	tail := string(id[strings.LastIndexByte(string(id), '.')+1:])
	first, last, several := strings.Cut(tail, "-")
	attempt, err := strconv.Atoi(first)
	if err == nil && several {
		rank, err = strconv.Atoi(last)
	}
	if err != nil {
		return 0, 0
	}
	return attempt, rank
}

// Workspace names a workspace: the scope of every other resource.
type Workspace struct {
	Subscription string `json:"subscription"`
	Group        string `json:"group"`
	Name         string `json:"name"`
}

// ID is the workspace's ARM id, in canonical casing.
func (w Workspace) ID() string {
	return "/subscriptions/" + w.Subscription + "/resourceGroups/" + w.Group + "/providers/" + Provider + "/workspaces/" + w.Name
}

// Key is the form of the id that the store and comparisons use: lower case.
func (w Workspace) Key() string { return strings.ToLower(w.ID()) }

// NoRunLinks is the environment variable that keeps MLflow clients from printing links to MLflow's
// own web page, which this server does not have.
const NoRunLinks = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"

// TrackingRoot is the path under which the MLflow servers of all workspaces are.
const TrackingRoot = "/mlflow/"

// TrackingPath is the path of the workspace's MLflow server. v2.0 is the same server, but Azure's
// plugin for MLflow asks there and gets addresses that it alone understands.
func (w Workspace) TrackingPath() string { return w.trackingPath("v1.0") }

// AzureTrackingURI is the address of the workspace's MLflow server in the form that Azure's plugin
// for MLflow knows. base is the URL of the Berth server.
func (w Workspace) AzureTrackingURI(base string) string {
	return "azureml://" + strings.TrimPrefix(base, "https://") + w.trackingPath("v1.0")
}

// AzurePluginURI is the URI under which Azure's plugin for MLflow has the artifacts of runs.
func (w Workspace) AzurePluginURI(base string) string {
	return "azureml://" + strings.TrimPrefix(base, "https://") + w.trackingPath("v2.0")
}

func (w Workspace) trackingPath(version string) string {
	id := url.URL{Path: w.ID()}
	return TrackingRoot + version + id.EscapedPath()
}

// ResourceID is the ARM id of a resource below the workspace, for example ResourceID("codes", "c",
// "versions", "1").
func (w Workspace) ResourceID(segments ...string) string {
	return w.ID() + "/" + strings.Join(segments, "/")
}

// A Ref names a resource below a workspace, versioned or not. Label is set instead of Version for
// NAME@LABEL.
type Ref struct {
	Workspace  Workspace // zero when the reference does not say
	Registry   string    // set for azureml://registries/… references
	Collection string    // codes, environments, data, models, components, computes, jobs, datastores
	Name       string
	Version    string
	Label      string
}

// ParseRef reads every form in which Azure clients name a resource: an ARM id,
// azureml:NAME[:VERSION|@LABEL], azureml:ID, azureml://registries/… and azureml://locations/…. A
// bare NAME is accepted. The collection of a short form is the caller's, passed in.
func ParseRef(text, collection string) (Ref, error) {
	s := text
	if rest, ok := cutPrefixFold(s, "azureml:"); ok && !strings.HasPrefix(rest, "//") {
		s = rest
	}
	switch {
	case strings.HasPrefix(strings.ToLower(s), "/subscriptions/"):
		return parseARM(text, strings.Split(strings.Trim(s, "/"), "/"))
	case strings.HasPrefix(strings.ToLower(s), "azureml://registries/"), strings.HasPrefix(strings.ToLower(s), "azureml://feeds/"):
		p := strings.Split(strings.Trim(s[len("azureml://"):], "/"), "/")
		r := Ref{Registry: at(p, 1), Collection: at(p, 2), Name: at(p, 3)}
		if err := r.tail(p, 4); err != nil || r.Name == "" {
			return Ref{}, Errorf(Invalid, "%q is not a registry reference (azureml://registries/NAME/COLLECTION/ASSET/versions/V)", text)
		}
		return r, nil
	case strings.HasPrefix(strings.ToLower(s), "azureml://locations/"):
		p := strings.Split(strings.Trim(s[len("azureml://"):], "/"), "/")
		r := Ref{Collection: at(p, 4), Name: at(p, 5)}
		if err := r.tail(p, 6); err != nil || r.Name == "" {
			return Ref{}, Errorf(Invalid, "%q is not an asset id (azureml://locations/L/workspaces/W/COLLECTION/NAME/versions/V)", text)
		}
		return r, nil
	}
	r := Ref{Collection: collection, Name: s}
	if i := strings.LastIndexByte(s, '@'); i > 0 {
		r.Name, r.Label = s[:i], s[i+1:]
	} else if i := strings.IndexByte(s, ':'); i > 0 {
		r.Name, r.Version = s[:i], s[i+1:]
	}
	if r.Name == "" {
		return Ref{}, Errorf(Invalid, "empty reference %q", text)
	}
	return r, nil
}

func parseARM(text string, p []string) (Ref, error) {
	bad := Errorf(Invalid, "%q is not the id of a workspace resource", text)
	if len(p) < 10 || !strings.EqualFold(p[2], "resourceGroups") || !strings.EqualFold(p[4], "providers") ||
		!strings.EqualFold(p[6], "workspaces") {
		return Ref{}, bad
	}
	r := Ref{Workspace: Workspace{p[1], p[3], p[7]}, Collection: p[8], Name: strings.TrimPrefix(p[9], "azureml:")}
	if err := r.tail(p, 10); err != nil {
		return Ref{}, bad
	}
	return r, nil
}

func (r *Ref) tail(p []string, i int) error {
	switch {
	case len(p) == i:
		return nil
	case len(p) == i+2 && strings.EqualFold(p[i], "versions"):
		r.Version = p[i+1]
	case len(p) == i+2 && strings.EqualFold(p[i], "labels"):
		r.Label = p[i+1]
	default:
		return fmt.Errorf("unexpected tail")
	}
	return nil
}

// ID is the ARM id of the reference in w when it names no workspace of its own.
func (r Ref) ID(w Workspace) string {
	if r.Registry != "" {
		id := "azureml://registries/" + r.Registry + "/" + r.Collection + "/" + r.Name
		switch {
		case r.Version != "":
			return id + "/versions/" + r.Version
		case r.Label != "":
			return id + "/labels/" + r.Label
		}
		return id
	}
	if r.Workspace != (Workspace{}) {
		w = r.Workspace
	}
	if r.Version == "" {
		return w.ResourceID(r.Collection, r.Name)
	}
	return w.ResourceID(r.Collection, r.Name, "versions", r.Version)
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix) {
		return s[len(prefix):], true
	}
	return s, false
}

func at(p []string, i int) string {
	if i < len(p) {
		return p[i]
	}
	return ""
}

// maxName is how long a name or version may be.
const maxName = 255

// CheckName says whether a resource may be called name. Names become path segments, log file names
// and labels, so they are letters, digits, dot, dash and underscore only.
func CheckName(noun, name string) error { return check(noun+" name", name, "") }

// CheckVersion is CheckName for the version of an asset, which may also contain a plus sign.
func CheckVersion(noun, version string) error { return check(noun+" version", version, "+") }

func check(what, s, more string) error {
	if len(s) > maxName {
		return Errorf(Invalid, "%s is %d characters long; at most %d are allowed", what, len(s), maxName)
	}
	ok := s != "" && !strings.Contains(s, "..")
	for i, c := range s {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._-"+more, c)) {
			ok = false
		}
	}
	if !ok {
		return Errorf(Invalid, "%s %q is not allowed: use letters, digits, '.', '-' and '_', starting with a letter or digit", what, s)
	}
	return nil
}

// NewGUID makes a random version 4 GUID.
func NewGUID() string {
	var b [16]byte
	rand.Read(b[:]) // crypto/rand.Read never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
