package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// startLine begins the lines with which a worker says how it was started and how long that took.
const startLine = workerLine + "start "

// maxStartLog is how much of the end of a log is searched for them.
const maxStartLog = 256 << 10

// workerStart is such a line. Times are in milliseconds.
type workerStart struct {
	How    string  `json:"how"` // cold, fork
	Import float64 `json:"import"`
	Init   float64 `json:"init"`
}

// StartPhases is how long the parts of the last start of a replica took.
func StartPhases(ctx context.Context, blobs *blob.Store, own locate.Storage, d *store.Doc) ([]berth.StartPhase, error) {
	st, err := job.State(d)
	if err != nil {
		return nil, err
	}
	t := st.Times
	out := []berth.StartPhase{}
	before := t.Submitted
	for _, p := range []struct {
		name string
		at   time.Time
	}{{"placing", t.Placed}, {"preparing", t.Staging}, {"code and model", t.Environment}, {"environment", t.Started}} {
		if p.at.IsZero() || before.IsZero() {
			continue
		}
		out = append(out, berth.StartPhase{Name: p.name, Ms: float64(p.at.Sub(before).Microseconds()) / 1000})
		before = p.at
	}
	last, err := lastStart(ctx, blobs, own, d.Name)
	if err != nil || last == nil {
		return out, err
	}
	imports, init := "import", "init()"
	if last.How == "fork" {
		out, imports = nil, "fork and import" // the last start was one by the fork server
	}
	return append(out, berth.StartPhase{Name: imports, Ms: last.Import}, berth.StartPhase{Name: init, Ms: last.Init}), nil
}

// lastStart is the last start that the log of a replica tells of.
func lastStart(ctx context.Context, blobs *blob.Store, own locate.Storage, name string) (*workerStart, error) {
	r, err := blobs.Open(ctx, own.Artifacts, locate.ArtifactPath(name)+"/"+berth.StdLog)
	if berth.CodeOf(err) == berth.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	size := r.Blob().Size
	from := max(0, size-maxStartLog)
	var text bytes.Buffer
	if _, err := r.CopyRange(&text, from, size-from); err != nil {
		return nil, err
	}
	var last *workerStart
	for line := range strings.Lines(text.String()) {
		if rest, ok := strings.CutPrefix(line, startLine); ok {
			w := &workerStart{}
			if json.Unmarshal([]byte(rest), w) == nil {
				last = w
			}
		}
	}
	return last, nil
}
