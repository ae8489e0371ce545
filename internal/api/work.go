package api

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/kind"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/parallel"
	"github.com/berthml/berth/internal/store"
)

// workService hands out mini-batches to the tasks of jobs that have them, and keeps the rows that
// these give in one file for each job, until its last task has written them to the job's output.
type workService struct{ front *Server }

// maxQuestion bounds what a task says before its rows, and maxRows the rows that it sends at once.
// A long list of files comes in several questions.
const (
	maxQuestion = 8 << 20
	maxRows     = 64 << 30
)

// guard finds out which task calls. The token is the one with which its command logs metrics.
func (s *workService) guard(h func(*call, *berth.Task) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var t *berth.Task
		ok, err := s.front.Authority.CheckTrack(r.Context(), auth.Bearer(r.Header.Get("Authorization")), time.Now(), func(id berth.TaskID) (string, error) {
			err := s.front.DB.View(r.Context(), func(tx *store.Tx) (err error) {
				t, err = tx.Task(id)
				return err
			})
			if berth.CodeOf(err) == berth.NotFound || err == nil && t.State == berth.TaskDone {
				err = berth.Errorf(berth.Unauthenticated, "the task of this token has ended")
			}
			if err != nil {
				return "", err
			}
			return t.User, nil
		})
		switch {
		case err == nil && !ok:
			err = berth.Errorf(berth.Unauthenticated, "mini-batches are for the tasks of their job")
		case err == nil && t.ID != berth.TaskID(r.PathValue("id")):
			err = berth.Errorf(berth.Denied, "this token does not open task %s", r.PathValue("id"))
		}
		if err != nil {
			s.front.fail(w, r, err)
			return
		}
		s.front.serve(w, r, auth.Principal{User: t.User, Task: t.ID}, func(c *call) error { return h(c, t) })
	})
}

// work answers a task that asks for mini-batches and says what became of those it had. Their rows
// follow the question.
func (s *workService) work(c *call, t *berth.Task) error {
	body := bufio.NewReaderSize(c.r.Body, 64<<10)
	var ask parallel.Ask
	if err := readQuestion(body, &ask); err != nil {
		return err
	}
	if err := s.room(c, t, ask.Finished); err != nil {
		return err
	}
	var how kind.Parallel
	var own locate.Storage
	err := s.front.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		if how, err = s.how(tx, t); err == nil {
			own, err = locate.StorageOf(tx, t.Workspace)
		}
		return err
	})
	if err != nil {
		return err
	}
	rel := rowsPath(own.ID, t)
	if err := s.keep(rel, body, ask.Finished); err != nil {
		return err
	}
	var answer parallel.Answer
	err = s.front.DB.Update(c.ctx(), func(tx *store.Tx) error {
		now, err := tx.Task(t.ID) // it may have ended meanwhile
		if err != nil {
			return err
		}
		if now.State == berth.TaskDone {
			return berth.Errorf(berth.Gone, "task %s is over", t.ID)
		}
		if len(ask.Plan) > 0 && ask.From == 0 {
			if err := registerRows(tx, own, t, rel); err != nil {
				return err
			}
		}
		answer, err = parallel.Exchange(tx, now, how, ask)
		return err
	})
	if err != nil {
		return err
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return c.sendJSON(http.StatusOK, b)
}

// readQuestion reads the line before the rows.
func readQuestion(body *bufio.Reader, ask *parallel.Ask) error {
	var line []byte
	for {
		part, err := body.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxQuestion {
			return berth.Errorf(berth.Limit, "the names of the files of a mini-batch take more than %d MiB: lower mini_batch_size", maxQuestion>>20)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return berth.Errorf(berth.Invalid, "the question does not end: %w", err)
		}
	}
	if err := json.Unmarshal(line, ask); err != nil {
		return berth.Errorf(berth.Invalid, "the question cannot be read: %w", err)
	}
	left := int64(maxRows)
	for _, r := range ask.Finished {
		if r.Size < 0 {
			return berth.Errorf(berth.Invalid, "rows cannot have %d bytes", r.Size)
		}
		if r.Size > left {
			return berth.Errorf(berth.Limit, "the rows have more than %d GiB: use smaller mini-batches", maxRows>>30)
		}
		left -= r.Size
	}
	return ask.Check()
}

// room refuses rows that are not sent, or for which there is no room.
func (s *workService) room(c *call, t *berth.Task, results []parallel.Result) error {
	total := int64(0)
	for _, r := range results {
		total += r.Size
	}
	if total == 0 {
		return nil
	}
	if n := c.r.ContentLength; n >= 0 && total > n {
		return berth.Errorf(berth.Invalid, "the question speaks of %d bytes of rows, and the request has %d", total, n)
	}
	if err := s.front.Blobs.Room(total); err != nil {
		return err
	}
	room, err := s.front.quota.Room(c.ctx(), t.Workspace)
	if err == nil {
		err = room.Full(t.Workspace)
	}
	if err != nil {
		return unkept(err) // the task tries again for a while
	}
	return nil
}

// how is how the job of a task does its work.
func (s *workService) how(tx *store.Tx, t *berth.Task) (how kind.Parallel, err error) {
	d, err := tx.Get(t.Workspace, "jobs", t.Job, "")
	if err != nil {
		return how, err
	}
	var v struct {
		Properties json.RawMessage `json:"properties"`
	}
	var props struct {
		JobType string `json:"jobType"`
	}
	if err := json.Unmarshal(d.Body, &v); err != nil {
		return how, err
	}
	if err := json.Unmarshal(v.Properties, &props); err != nil {
		return how, err
	}
	k, err := s.front.KindOf(props.JobType)
	if err != nil {
		return how, err
	}
	puller, ok := k.(kind.Puller)
	if !ok {
		return how, berth.Errorf(berth.Invalid, "job %s has no mini-batches", t.Job)
	}
	return puller.Pull(v.Properties)
}

// rowsPath is where the rows of a job are, below the directory of blobs: not among the logs, where
// jobs on this machine can write.
func rowsPath(storage string, t *berth.Task) string {
	key := string(t.ID[:len(t.ID)-len(strconv.Itoa(t.Attempt))-1])
	h := fnv.New32a()
	h.Write([]byte(key)) // a hash does not fail
	return fmt.Sprintf("rows/%02x/%s-%s.csv", uint8(h.Sum32()), storage[:8], key)
}

// registerRows gives the file of results a name among the job's artifacts, so that it is seen,
// counted and deleted with them.
func registerRows(tx *store.Tx, own locate.Storage, t *berth.Task, rel string) error {
	now := tx.Now()
	return tx.PutBlob(&store.Blob{
		Container: own.Artifacts, Name: locate.ArtifactPath(t.Job) + "/" + parallel.RowsName, Live: rel, ContentType: "text/csv; charset=utf-8",
		ETag: fmt.Sprintf("0x%016X", now.UnixNano()), Created: now, Modified: now,
	})
}

// keep writes rows to the end of a file, and notes where they are. Several tasks may do so at once:
// each gets a place of its own.
func (s *workService) keep(rel string, body io.Reader, results []parallel.Result) error {
	total := int64(0)
	for _, r := range results {
		total += r.Size
	}
	if total == 0 {
		return nil
	}
	f, err := s.front.Blobs.OpenLive(rel, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return unkept(err)
	}
	defer f.Close() // synced below
	at, err := reserve(f, total)
	if err != nil {
		return unkept(err)
	}
	start := at
	for i := range results {
		r := &results[i]
		r.Start = at
		if _, err := io.CopyN(io.NewOffsetWriter(f, at), body, r.Size); err != nil {
			return unkept(errors.Join(err, release(f, start, total)))
		}
		at += r.Size
	}
	if err := f.Sync(); err != nil {
		return unkept(err)
	}
	return nil
}

func unkept(err error) error {
	return berth.Errorf(berth.Unavailable, "the rows could not be kept: %w", err)
}

// reserve makes room for so many bytes at the end of a file and says where it is. Several servers
// may share the file.
func reserve(f *os.File, size int64) (at int64, err error) {
	unlock, err := lockFile(f)
	if err != nil {
		return 0, err
	}
	defer unlock()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), f.Truncate(info.Size() + size)
}

// release gives back room that was not filled, unless somebody else's follows it.
func release(f *os.File, at, size int64) error {
	unlock, err := lockFile(f)
	if err != nil {
		return err
	}
	defer unlock()
	if info, err := f.Stat(); err != nil || info.Size() != at+size {
		return err
	}
	return f.Truncate(at)
}

// rows sends the rows of all mini-batches in the order of their numbers, which is that of their
// files; or, where the script writes the results itself, the names of the files that were done.
func (s *workService) rows(c *call, t *berth.Task) error {
	var how kind.Parallel
	var own locate.Storage
	var done []*berth.MiniBatch
	err := s.front.DB.View(c.ctx(), func(tx *store.Tx) (err error) {
		if how, err = s.how(tx, t); err != nil {
			return err
		}
		w, err := tx.Work(t.Workspace, t.Job)
		if err != nil {
			return err
		}
		if w == nil || w.Writer != t.ID || !w.Ended() {
			return berth.Errorf(berth.Conflict, "task %s is not the one that writes the result", t.ID)
		}
		if own, err = locate.StorageOf(tx, t.Workspace); err != nil {
			return err
		}
		done, err = tx.Batches(t.Workspace, t.Job, store.BatchQuery{State: berth.BatchDone})
		return err
	})
	if err != nil {
		return err
	}
	if how.Summary {
		return c.raw(summary(done))
	}
	total := int64(0)
	for _, b := range done {
		total += b.Size
	}
	c.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	c.w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
	if total == 0 {
		return c.empty(http.StatusOK)
	}
	f, err := s.front.Blobs.OpenLive(rowsPath(own.ID, t), os.O_RDONLY)
	if err != nil {
		return berth.Errorf(berth.Internal, "the rows of job %s are gone: %w", t.Job, err)
	}
	defer f.Close()
	c.sent = true
	for _, b := range done {
		n, err := io.Copy(c.w, io.NewSectionReader(f, b.Start, b.Size))
		if err == nil && n != b.Size {
			err = berth.Errorf(berth.Internal, "the file of rows of job %s is shorter than it was", t.Job)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// summary is the names of the items that were done, a line for each.
func summary(done []*berth.MiniBatch) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	for _, m := range done {
		for _, item := range m.Items {
			_ = w.Write([]string{item}) // a buffer takes everything
		}
	}
	w.Flush()
	return b.Bytes()
}
