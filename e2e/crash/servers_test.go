package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthml/berth/internal/store/pgtest"
)

// peer is one of several servers of a home.
type peer struct {
	name string        // empty is the first
	way  *pgtest.Proxy // to the database

	mu   sync.Mutex
	cmd  *exec.Cmd
	stay bool // it is not started again
}

func (p *peer) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// peers are several servers of one home and one PostgreSQL. Requests of chaos go to any of them.
type peers struct {
	*chaos
	all []*peer
}

// newPeers starts n servers, each with its own way to the database.
func newPeers(t *testing.T, n int) *peers {
	t.Helper()
	db, err := pgtest.Start()
	pgtest.Need(t, err)
	t.Cleanup(db.Stop)
	g := &peers{chaos: makeChaos(t, "database: postgres://postgres@/postgres?sslmode=disable\n")}
	for i := range n {
		p := &peer{way: db.Proxy(t)}
		if i > 0 {
			p.name = string(rune('a' + i))
		}
		g.all = append(g.all, p)
		g.run(p)
	}
	g.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return g.dial(ctx, g.all[rand.IntN(len(g.all))])
		},
	}}
	return g
}

func (g *peers) dial(ctx context.Context, p *peer) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(g.home(), "run", p.name, "api.sock"))
}

// run starts a server, and again each time it was killed, until the test ends or it is to stay
// down.
func (g *peers) run(p *peer) {
	start := func() {
		cmd := exec.Command(g.bin, "serve", "--home", g.home(), "--listen", "127.0.0.1:0", "--name", p.name)
		cmd.Env = append(os.Environ(), "PGHOST=127.0.0.1", "PGPORT="+strconv.Itoa(p.way.Port()))
		log, err := os.OpenFile(filepath.Join(g.root, "serve"+p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			g.t.Error(err)
			return
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			g.t.Error(err)
			return
		}
		p.cmd = cmd
	}
	over, ended := false, make(chan struct{})
	start()
	go func() {
		defer close(ended)
		for {
			cmd := p.cmd
			_ = cmd.Wait() // how it ended is in its log
			p.mu.Lock()
			if over || p.stay {
				p.mu.Unlock()
				return
			}
			start()
			p.mu.Unlock()
		}
	}()
	g.t.Cleanup(func() {
		p.mu.Lock()
		over = true
		_ = p.cmd.Process.Kill() // it may have ended
		p.mu.Unlock()
		<-ended
	})
}

// leader is the server that another one, or any, says leads; nil when it says that none does.
func (g *peers) leader(ask *peer) (*peer, error) {
	c := g.http
	if ask != nil {
		c = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return g.dial(ctx, ask) },
		}}
	}
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, "http://berth/berth/v1/server", nil)
	if err != nil {
		return nil, err
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var v struct {
		Servers []struct {
			Name  string `json:"name"`
			Leads bool   `json:"leads"`
		} `json:"servers"`
	}
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		return nil, err
	}
	for _, s := range v.Servers {
		for _, p := range g.all {
			if s.Leads && (s.Name == p.name || s.Name == "main" && p.name == "") {
				return p, nil
			}
		}
	}
	return nil, errors.New("none leads")
}

// leads waits until a server leads that is not the one given, as others see it, and returns it.
func (g *peers) leads(not *peer) (found *peer) {
	g.t.Helper()
	g.until("a leader", time.Minute, func() (bool, error) {
		for _, ask := range g.all {
			if ask == not {
				continue
			}
			p, err := g.leader(ask)
			if err == nil && p != not {
				found = p
				return true, nil
			}
		}
		return false, errors.New("none, or the one before")
	})
	return found
}

// follower is a server that does not lead.
func (g *peers) follower(leader *peer, rng *rand.Rand) *peer {
	for {
		if p := g.all[rng.IntN(len(g.all))]; p != leader {
			return p
		}
	}
}

// A serverFault is something that happens to one of several servers. It returns when that is over.
type serverFault struct {
	name string
	do   func(g *peers, leader *peer, rng *rand.Rand)
}

var serverFaults = []serverFault{
	{"leader paused until replaced", func(g *peers, leader *peer, _ *rand.Rand) {
		pid := leader.pid()
		g.signal(syscall.SIGSTOP, pid)
		g.leads(leader)
		time.Sleep(time.Second) // for what was begun to be ended by the next
		g.signal(syscall.SIGCONT, pid)
	}},
	{"leader killed", func(g *peers, leader *peer, _ *rand.Rand) { g.kill(leader.pid()) }},
	{"follower's database cut", func(g *peers, leader *peer, rng *rand.Rand) {
		p := g.follower(leader, rng)
		p.way.Set(false, true)
		time.Sleep(time.Second)
		p.way.Set(false, false)
	}},
	{"leader's database silent until replaced", func(g *peers, leader *peer, _ *rand.Rand) {
		leader.way.Set(true, false)
		g.leads(leader)
		time.Sleep(time.Second)
		leader.way.Set(false, false)
	}},
	{"leader's database unreachable until replaced", func(g *peers, leader *peer, _ *rand.Rand) {
		leader.way.Set(false, true)
		g.leads(leader)
		time.Sleep(time.Second)
		leader.way.Set(false, false)
	}},
	{"follower killed", func(g *peers, leader *peer, rng *rand.Rand) { g.kill(g.follower(leader, rng).pid()) }},
	{"leader stopped in order", func(g *peers, leader *peer, _ *rand.Rand) { g.signal(syscall.SIGTERM, leader.pid()) }},
}

// disturb submits jobs through all servers while faults happen to them, each of the kinds in turn,
// and looks what became of the jobs: each ran exactly once, and is what it says it is.
func (g *peers) disturb(kinds []serverFault, jobs, faults int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	g.leads(nil)
	var submitted sync.WaitGroup
	stop := make(chan struct{})
	count := 0
	submitted.Go(func() { // as long as something happens, and so many at least
		for ; ; count++ {
			select {
			case <-stop:
				if count >= jobs {
					return
				}
			default:
			}
			if count >= jobs {
				time.Sleep(200 * time.Millisecond) // all of them are looked at in the end
			}
			g.submit(count)
		}
	})
	for n := range faults {
		f := kinds[n%len(kinds)]
		leader := g.leads(nil)
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		begin := time.Now()
		f.do(g, leader, rng)
		g.t.Logf("%s (%q): %v", f.name, leader.name, time.Since(begin).Round(time.Millisecond))
	}
	close(stop)
	began := time.Now()
	submitted.Wait()
	g.t.Logf("the last of %d jobs submitted %v later", count, time.Since(began).Round(time.Millisecond))
	for i := range count {
		var o outcome
		g.until("end of "+jobName(i), 5*time.Minute, func() (bool, error) {
			var err error
			o, err = g.outcome(jobName(i))
			return err == nil && (o.Status == "Completed" || o.Status == "Failed"), fmt.Errorf("%+v %w", o, err)
		})
		if g.check(i, o) {
			g.t.Errorf("%s is lost: %s", jobName(i), o.Berth.Exit.Reason)
		}
	}
	g.t.Logf("%d faults, %d jobs, %d doubled; the last ended and was checked %v after the last fault", faults, count, g.doubled, time.Since(began).Round(time.Millisecond))
}

// serverSizes are how many jobs there are at least, and how many faults: so many, or
// BERTH_CRASH_SERVER_FAULTS, which makes it long.
func serverSizes(short int) (jobs, faults int, seed uint64) {
	jobs, faults, seed = 25, short, 1
	if n, err := strconv.Atoi(os.Getenv("BERTH_CRASH_SERVER_FAULTS")); err == nil {
		faults = n
	}
	if n, err := strconv.Atoi(os.Getenv("BERTH_CRASH_SEED")); err == nil {
		seed = uint64(n)
	}
	return jobs, faults, seed
}

// halves are the kinds of faults in two parts. A long run goes on with those of the other.
func halves() (first, second []serverFault) {
	half := (len(serverFaults) + 1) / 2
	return serverFaults[:half], serverFaults[half:]
}

// TestTwoServers: jobs submitted through two servers of one PostgreSQL run once, whatever happens
// to the servers and to their ways to the database.
func TestTwoServers(t *testing.T) {
	first, second := halves()
	jobs, faults, seed := serverSizes(len(first))
	newPeers(t, 2).disturb(slices.Concat(first, second), jobs, faults, seed)
}

// TestThreeServers is the same with three.
func TestThreeServers(t *testing.T) {
	first, second := halves()
	jobs, faults, seed := serverSizes(len(second))
	newPeers(t, 3).disturb(slices.Concat(second, first), jobs, faults, seed+1)
}
