// Package devbox keeps compute instances: personal machines with notebooks, a terminal and ssh that
// stop by themselves.
//
// The API writes what somebody wants into a compute's document; [Loop] makes it true. For each
// instance there is a keeper, which looks at the document and at the instance, does the next thing
// and waits until something happens. Whatever it does may be done twice, so a server that is killed
// at any moment goes on where it was.
//
// On the node runs one process of ours, the agent (package agent): it sets the instance up, keeps
// its services alive and says whether it is used. It outlives the server.
package devbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/store"
)

// Machine is where instances live: a driver whose nodes come and go.
type Machine interface {
	AddNode(ctx context.Context, n driver.NodeSpec) error
	RemoveNode(ctx context.Context, name string) error
	Start(ctx context.Context, l berth.Launch) (driver.Handle, error)
	Observe(ctx context.Context) ([]driver.Observed, error)
	Remove(ctx context.Context, h driver.Handle) error
}

// Options is what a Loop is made of.
type Options struct {
	DB      *store.DB
	Machine Machine
	// Dir holds a directory for each instance; see Dir.
	Dir string
	// Home is the server's home.
	Home string
	// Command is the command line of the agent, less its options.
	Command []string
	// Agent reaches the agent of the instance in a directory.
	Agent func(dir string) Agent
	// Admit completes a node that is asked for: what its size means, what it costs, which GPUs it
	// gets. It refuses with Limit or Invalid what cannot be had, and with Unavailable what cannot
	// be had now.
	Admit func(tx *store.Tx, n *berth.Node) error
	// Script reads a setup script from the workspace's storage.
	Script func(ctx context.Context, workspace, path string) ([]byte, error)
	// DiskBytes is how large an instance's disk is.
	DiskBytes int64
	// Access is what programs on an instance need to use the server as its owner; nil when they
	// cannot. The token is good as long as the instance has the node.
	Access func(workspace, node string) (Access, error)
	// Environments says where packages are kept.
	Environments driver.Environments
	Log          *slog.Logger
}

// Loop makes what the store says of instances come true.
type Loop struct {
	o Options

	mu      sync.Mutex
	keepers map[key]*keeper
	group   sync.WaitGroup
}

// key names an instance.
type key struct{ workspace, name string } // name in lower case

// New returns a Loop that does nothing until Run.
func New(o Options) *Loop { return &Loop{o: o, keepers: map[key]*keeper{}} }

// Dir is the directory of an instance below root.
//
//	home/       the user's files: the home directory of everything on it
//	env/        its Python environment
//	log/        what scripts, services and the agent had to say
//	key/        of its ssh server
//	ca.pem      the certificate authorities that programs on it trust
//	agent.json  what the agent is told
func Dir(root, workspace, name string) string {
	h := sha256.Sum256([]byte(workspace))
	return filepath.Join(root, hex.EncodeToString(h[:8]), strings.ToLower(name))
}

// Scratch is a directory for what an instance needs only while it runs, and what must have a short
// name. It is not on the instance's disk, which may be full, and goes with its node.
func Scratch(dir string) string {
	h := sha256.Sum256([]byte(dir))
	return filepath.Join(os.TempDir(), "berth-"+strconv.Itoa(os.Getuid()), "ci-"+hex.EncodeToString(h[:6]))
}

// Run works until ctx ends, and returns when every call it made has returned. Instances run on.
func (l *Loop) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer l.group.Wait()
	defer cancel()
	for {
		from := l.o.DB.Rev()
		if err := l.load(ctx); err != nil {
			return ended(ctx, err)
		}
		w := l.o.DB.Watch(ctx, from)
		for {
			batch, err := w.Next()
			if berth.CodeOf(err) == berth.Gone {
				break // too far behind: read everything again
			}
			if err != nil {
				return ended(ctx, err)
			}
			for _, e := range batch {
				if e.Type == berth.EventBudgetExhausted {
					l.wakeAll(e.Workspace)
				}
				if name, ok := strings.CutPrefix(e.Subject, "computes/"); ok && !ours(e.Type) {
					l.wake(ctx, key{e.Workspace, strings.ToLower(name)})
				}
			}
		}
	}
}

// ours says whether an event is one that keepers write and need not be told of.
func ours(typ string) bool {
	return typ == berth.EventActivity || typ == berth.EventWarning || typ == berth.EventCompute
}

// ended is nil for the end of ctx, which is how a Loop is stopped.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
		return nil //nolint:nilerr // see above
	}
	return err
}

// load makes a keeper for every instance there is.
func (l *Loop) load(ctx context.Context) error {
	var keys []key
	err := l.o.DB.View(ctx, func(tx *store.Tx) error {
		keys = keys[:0]
		workspaces, err := tx.All(store.Query{Kind: "workspaces", NoBody: true})
		if err != nil {
			return err
		}
		for _, w := range workspaces {
			docs, err := tx.All(store.Query{Workspace: w.Name, Kind: "computes"})
			if err != nil {
				return err
			}
			for _, d := range docs {
				if IsInstance(d) {
					keys = append(keys, key{d.Workspace, strings.ToLower(d.Name)})
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		l.wake(ctx, k)
	}
	l.sweep(ctx, keys)
	return nil
}

// wake tells the keeper of an instance that something changed, and makes one where there is none.
func (l *Loop) wake(ctx context.Context, k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kp := l.keepers[k]
	if kp == nil {
		kp = newKeeper(l, k)
		l.keepers[k] = kp
		l.group.Go(func() { kp.run(ctx) })
	}
	kp.poke()
}

// wakeAll tells the keepers of a workspace that something concerns all of them.
func (l *Loop) wakeAll(workspace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, kp := range l.keepers {
		if k.workspace == workspace {
			kp.poke()
		}
	}
}

// forget lets a keeper go whose instance is gone, unless it was woken meanwhile.
func (l *Loop) forget(kp *keeper) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-kp.wake:
		return false
	default:
		delete(l.keepers, kp.key)
		return true
	}
}

// retryAfter is how long a keeper waits after the nth failure in a row.
func retryAfter(n int) time.Duration { return min(200*time.Millisecond<<min(n, 8), 30*time.Second) }
