package runner

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/runner/cache"
)

// A large input that is only read is checked while the command runs. A task is not over before
// that, and one that read an altered input is run again.

// earlyFile, in the task's directory, has a line for each tree that is not checked yet, for a
// runner that takes the task up.
const earlyFile = "unchecked"

// asIsFile, in the task's directory, has a line for each cached folder that the command reads as it
// is, for a runner that takes the task up.
const asIsFile = "as-is"

// causeAltered ends a task whose input was altered on the node: the job gets another attempt.
const causeAltered = "evicted"

// mayBeEarly says whether an input may be used before it was checked. The second attempt of a job
// is never the reason for a third, and mini-batches that were recorded are not done again.
func (t *task) mayBeEarly(in berth.LaunchInput) bool {
	if mountless(false) != "" && !t.o.Cache.Protects() { // it is copied, which takes longer
		return false
	}
	return t.l.Attempt <= 1 && !t.l.Checked && !berth.OwnsInput(in.Mode) && !berth.EvaluatesInput(in.Mode)
}

// noteTrees remembers which trees are to be checked, and which the command reads as they are.
func (t *task) noteTrees() error {
	for _, x := range t.trees {
		if x.asIs {
			if err := t.note(asIsFile, x.what+"\t"+x.use.Key+"\t"+x.use.Was().String()); err != nil {
				return err
			}
		}
		if x.use.Early {
			if err := t.note(earlyFile, x.what+"\t"+x.use.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// inspection is the check of a task's inputs while its command runs.
type inspection struct {
	cancel context.CancelFunc
	done   chan struct{}
	wrong  string // what was found
	err    error
}

// inspect begins to check the inputs that were used before; nil when there are none. found is
// called once if one was altered.
func (t *task) inspect(ctx context.Context, found func()) *inspection {
	path := filepath.Join(t.o.Dir, earlyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	i := &inspection{cancel: cancel, done: make(chan struct{}), err: err}
	go func() {
		defer close(i.done)
		for line := range strings.Lines(string(text)) {
			what, key, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			var wrong string
			if wrong, i.err = t.checkEarly(ctx, key); i.err != nil {
				return
			}
			if wrong != "" {
				i.wrong = what + ": " + wrong
				found()
				return
			}
		}
		if err := os.Remove(path); err != nil {
			t.o.Log.Warn("record of unchecked inputs not removed", "task", t.l.Task, "err", err)
		}
	}()
	return i
}

func (t *task) checkEarly(ctx context.Context, key string) (wrong string, err error) {
	for _, x := range t.trees {
		if x.use.Key == key {
			return x.use.Check(ctx)
		}
	}
	if t.o.Cache == nil {
		return "", berth.Errorf(berth.Internal, "the node's cache cannot be opened")
	}
	return t.o.Cache.Recheck(ctx, key)
}

// judge waits for the end of the check and corrects the exit of a command that read an altered
// input, or one that was deleted under it, unless it was asked to end.
func (t *task) judge(ctx context.Context, exit *berth.Exit, i *inspection) *berth.Exit {
	wrong, cause := "", causeAltered
	if i != nil {
		<-i.done
		if wrong = i.wrong; wrong == "" && i.err != nil {
			wrong = "an input was not checked: " + i.err.Error()
		}
	}
	if wrong == "" {
		if wrong = t.lost(); t.l.Attempt > 1 || t.l.Checked {
			cause = "staging" // it is not run for ever, and mini-batches are not done again
		}
	}
	if wrong == "" || ctx.Err() != nil || t.stop != nil && t.stop.Cause != causeAltered {
		return exit
	}
	t.warn(wrong)
	return &berth.Exit{Code: -1, Cause: cause, Reason: wrong}
}

// lost says what became of the cached folders that the command read, where they are not as they
// were.
func (t *task) lost() string {
	for _, x := range t.trees {
		if x.asIs {
			if why := t.o.Cache.Lost(x.use.Key, x.use.Was()); why != "" {
				return x.what + ": " + why
			}
		}
	}
	if t.o.Last.Step == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(t.o.Dir, asIsFile))
	if err != nil || t.o.Cache == nil { // there are none, or nobody can say
		return ""
	}
	for line := range strings.Lines(string(text)) {
		part := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(part) != 3 {
			continue
		}
		was, err := cache.ParseWas(part[2])
		if err != nil {
			continue
		}
		if why := t.o.Cache.Lost(part[1], was); why != "" {
			return part[0] + ": " + why
		}
	}
	return ""
}

// close ends the check of a task that is let go of.
func (i *inspection) close() {
	if i != nil {
		i.cancel()
		<-i.done
	}
}
