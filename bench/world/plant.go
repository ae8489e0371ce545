package world

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/bench/measure"
	"github.com/berthml/berth/internal/api"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/blob"
	"github.com/berthml/berth/internal/blob/front"
	"github.com/berthml/berth/internal/control"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/fake"
	"github.com/berthml/berth/internal/filewatch"
	"github.com/berthml/berth/internal/locate"
	"github.com/berthml/berth/internal/sched"
	"github.com/berthml/berth/internal/store"
)

// Plant is a server of real parts (store with its syncs, front door, loops) over a provider whose
// nodes are timers, in a process of its own. What the runners of its tasks would report comes to
// whoever started it, who is to deliver it.
type Plant struct {
	*Server
	out *bufio.Reader
}

var plantSpace = berth.Workspace{Subscription: "00000000-0000-0000-0000-000000000000", Group: "bench", Name: "plant"}

// StartPlant starts a plant in dir whose nodes take boot to be there. self is the command line of
// [PlantMain].
func StartPlant(ctx context.Context, group *measure.Group, self []string, dir string, boot time.Duration) (*Plant, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Server{Home: dir, WS: plantSpace.ID(), socket: filepath.Join(dir, "api.sock"), group: group.Sub("plant"), ended: make(chan struct{})}
	s.cmd = s.group.Command(context.WithoutCancel(ctx), self[0], append(self[1:], dir, boot.String())...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	p := &Plant{Server: s, out: bufio.NewReaderSize(out, 1<<20)}
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		p.Stop()
		return nil, fmt.Errorf("the plant did not start: %q %w", line, err)
	}
	return p, nil
}

// Stop ends the plant.
func (p *Plant) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, p.out)
	_ = p.cmd.Wait()
	p.group.Close()
}

// Reports waits for what a runner would report next.
func (p *Plant) Reports() (rs []berth.Report, err error) {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return rs, json.Unmarshal(line, &rs)
}

// Report delivers reports, as a runner.
func (c *Conn) Report(rs []berth.Report) error {
	b, err := json.Marshal(rs)
	if err != nil {
		return err
	}
	_, err = c.do(http.MethodPost, "/runner/v1/reports", b)
	return err
}

// PlantMain is the plant's process. args are the directory and the boot time.
func PlantMain(ctx context.Context, args []string) (err error) {
	if len(args) != 2 {
		return errors.New("a plant needs a directory and a boot time")
	}
	dir := args[0]
	boot, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := store.Open(ctx, "sqlite:"+filepath.Join(dir, "berth.db"), store.Options{Log: log})
	if err != nil {
		return err
	}
	defer db.Close()
	blobs, err := blob.Open(filepath.Join(dir, "blobs"), db)
	if err != nil {
		return err
	}
	defer blobs.Close()
	keys, err := auth.LoadKeys(dir)
	if err != nil {
		return err
	}
	signer := front.NewSigner(keys.SAS)
	at := locate.Locator{BaseURL: "https://127.0.0.1:1", Account: "st", Suffix: "berth/"}
	curated := func(string) (berth.LaunchEnv, bool) { return berth.LaunchEnv{}, false }
	machine := sched.Machine{CPUs: 2, Memory: 16 << 30} // sizes are overcommitted: the nodes are none
	door := api.New(api.Options{
		DB: db, Blobs: blobs, Front: front.New(blobs, signer, front.Options{Account: "st", Suffix: "berth"}),
		Authority: auth.NewAuthority(keys, db), Signer: signer, Watcher: &filewatch.Watcher{}, Log: log, Locator: at,
		Location: "local", Default: plantSpace, Curated: curated, Machine: machine,
	})
	if err := door.EnsureWorkspace(ctx, plantSpace, "bench"); err != nil {
		return err
	}
	debug.SetGCPercent(200) // as a server does
	reports := make(chan []berth.Report, 10_000)
	tell := func(rs []berth.Report) { reports <- rs }
	here, nodes := fake.New(fake.Options{Nodes: fake.Machine(2), Report: tell}), fake.New(fake.Options{Scales: true, Boot: boot, Report: tell})
	defer here.Close()
	defer nodes.Close()
	loops := control.New(control.Options{
		DB: db, Blobs: blobs, Keys: keys, Signer: signer, Locator: at, Log: log, Curated: curated, Machine: machine, Keep: filepath.Join(dir, "keep"),
		Targets: fake.Registry(map[string]driver.Driver{"local": here, "amlcompute": nodes, "computeinstance": nodes}, log),
	})
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		return err
	}
	owner := auth.Principal{User: "bench", Role: auth.Admin}
	srv := &http.Server{
		Handler: door, ReadHeaderTimeout: 20 * time.Second,
		BaseContext: func(net.Listener) context.Context { return auth.With(ctx, owner) },
	}
	defer srv.Close()
	go func() { _ = srv.Serve(l) }()
	go tellAll(reports)
	fmt.Println("ready")
	return loops.Run(ctx)
}

// tellAll writes reports for whoever started the plant.
func tellAll(reports <-chan []berth.Report) {
	w := bufio.NewWriter(os.Stdout)
	for rs := range reports {
		b, err := json.Marshal(rs)
		if err != nil {
			continue
		}
		fmt.Fprintln(w, strings.TrimSpace(string(b)))
		if len(reports) == 0 && w.Flush() != nil {
			return
		}
	}
}
