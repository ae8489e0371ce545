package serve

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/job"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/store"
)

// announcement begins the line with which a worker says on which ports it listens. It is the first
// that it writes, before any code of the user runs.
const announcement = workerLine + "ports "

// workerLine begins all the lines that a worker writes for us.
const workerLine = "berth-worker: "

// observe looks at the jobs of the replicas, and asks those that start whether they are ready.
func (k *keeper) observe(ctx context.Context, v *view) map[string]jobView {
	seen := map[string]jobView{}
	onlyServer := sync.OnceValue(func() bool { return k.l.o.OnlyServer(ctx) })
	for _, r := range v.state.Replicas {
		d := v.jobs[r.Job]
		if d == nil {
			continue
		}
		j := jobView{exists: true, status: berth.JobStatus(d.Status)}
		if r.State == berth.ReplicaDraining {
			j.idle, j.onlyServer = k.l.o.Idle(r.Job), onlyServer()
		}
		st, err := job.State(d)
		if err != nil {
			j.reason = err.Error()
		} else {
			j.reason, j.started = st.Reason, st.Times.Started
		}
		switch {
		case j.status.Terminal() || r.State == berth.ReplicaStarting && !j.started.IsZero() && k.l.o.DB.Now().Sub(j.started) > probeTimeout:
			if j.tail, err = Tail(ctx, k.l.o.Blobs, v.own, d.Name, 20); err != nil {
				k.l.o.Log.Warn("log of a replica not read", "job", d.Name, "err", err)
			}
		}
		if r.State == berth.ReplicaStarting && j.status == berth.Running {
			j.addresses = k.ready(ctx, v, d)
		}
		seen[r.Job] = j
	}
	return seen
}

// ready are the addresses of a replica's workers if all of them answer.
func (k *keeper) ready(ctx context.Context, v *view, d *store.Doc) []string {
	ports, err := announced(ctx, k.l.o.Blobs, v.own, d.Name)
	if err != nil {
		return nil // it has not written anything yet
	}
	var out []string
	for _, port := range ports {
		at := addressOf(d.Name, port, v.far[d.Name])
		if !k.answers(ctx, at, d.Name) {
			return nil
		}
		out = append(out, at)
	}
	return out
}

// answers asks a worker whether it is ready.
func (k *keeper) answers(ctx context.Context, at, name string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/", http.NoBody)
	if err != nil {
		return false
	}
	nonce := berth.NewGUID()
	req.Header.Set(NonceHeader, nonce)
	resp, err := k.l.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 4<<10) //nolint:errcheck // the status is what counts
	return resp.StatusCode == http.StatusOK && Proves(resp.Header, k.l.o.Secret(name), nonce)
}

// NonceHeader asks a worker to prove that it is the one of a replica, and ProofHeader is the proof.
const (
	NonceHeader = "X-Berth-Nonce"
	ProofHeader = "X-Berth-Proof"
)

// Proves says whether an answer is of a worker that knows the secret.
func Proves(h http.Header, secret, nonce string) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(nonce))
	return hmac.Equal([]byte(h.Get(ProofHeader)), []byte(hex.EncodeToString(mac.Sum(nil))))
}

// maxAnnouncement bounds how far into a log the ports are looked for: what prepares the
// environment may write before the worker does.
const maxAnnouncement = 256 << 10

// announced are the ports of which the log of a replica says that its workers listen there.
func announced(ctx context.Context, blobs *blob.Store, own locate.Storage, name string) ([]string, error) {
	r, err := blobs.Open(ctx, own.Artifacts, locate.ArtifactPath(name)+"/"+berth.StdLog)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var text bytes.Buffer
	if _, err := r.CopyRange(&text, 0, min(maxAnnouncement, r.Blob().Size)); err != nil {
		return nil, err
	}
	for line := range strings.Lines(text.String()) {
		list, ok := strings.CutPrefix(line, announcement)
		if !ok || !strings.HasSuffix(list, "\n") {
			continue
		}
		ports := strings.Fields(list)
		for _, p := range ports {
			if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
				return nil, berth.Errorf(berth.Invalid, "the replica %s announces the port %q, which is none", name, p)
			}
		}
		return ports, nil
	}
	return nil, berth.Errorf(berth.NotFound, "the replica %s has announced no ports yet", name)
}

// Tail is the last lines of the log of a replica, at most a few kilobytes.
func Tail(ctx context.Context, blobs *blob.Store, own locate.Storage, name string, lines int) (string, error) {
	r, err := blobs.Open(ctx, own.Artifacts, locate.ArtifactPath(name)+"/"+berth.StdLog)
	if berth.CodeOf(err) == berth.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	most := int64(lines) * 200
	size := r.Blob().Size
	from := max(0, size-most)
	var text bytes.Buffer
	if _, err := r.CopyRange(&text, from, size-from); err != nil {
		return "", err
	}
	all := strings.Split(strings.ToValidUTF8(strings.TrimRight(text.String(), "\n"), "?"), "\n")
	if from > 0 && len(all) > 1 {
		all = all[1:] // the first is cut
	}
	var kept []string
	for _, line := range all {
		if !strings.HasPrefix(line, workerLine) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-lines):], "\n"), nil
}
