package peer

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berthml/berth/bench/measure"
)

// Postgres is a PostgreSQL server with its default settings: fsync and synchronous_commit are on.
type Postgres struct {
	d    daemons
	data string
}

// StartPostgres makes a database in dir, which the user postgres must be able to reach, and runs a
// server for it. As root, it runs as the user postgres.
func StartPostgres(ctx context.Context, group *measure.Group, dir string) (*Postgres, error) {
	p := &Postgres{data: filepath.Join(dir, "data"), d: daemons{logs: dir, group: group.Sub(filepath.Base(dir))}}
	if err := os.MkdirAll(p.data, 0o755); err != nil {
		return nil, err
	}
	var as []string
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, fmt.Errorf("PostgreSQL is not installed: %w", err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(p.data, uid, gid); err != nil {
			return nil, err
		}
		as = []string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}
	}
	initdb, err := postgresTool("initdb")
	if err != nil {
		return nil, err
	}
	make := append(as[:len(as):len(as)], initdb, "-D", p.data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale", "C.UTF-8")
	cmd := exec.CommandContext(ctx, make[0], make[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %.300s", err, out)
	}
	server, err := postgresTool("postgres")
	if err != nil {
		return nil, err
	}
	run := append(as, server, "-D", p.data, "-h", "", "-p", "5432", "-k", p.data)
	if _, err = p.d.start(ctx, run[0], run[1:]...); err != nil {
		return nil, err
	}
	err = p.d.wait(ctx, "PostgreSQL", func(ctx context.Context) bool {
		c, err := pgx.Connect(ctx, p.URL("postgres"))
		return err == nil && c.Close(ctx) == nil
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func postgresTool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL is not installed: no %s", name)
	}
	return found[len(found)-1], nil
}

// URL is the address of its database, a socket, with a scheme that the client knows.
func (p *Postgres) URL(scheme string) string {
	return scheme + "://postgres@/postgres?host=" + url.QueryEscape(p.data) + "&port=5432"
}

// Usage is the CPU of the server and all its processes.
func (p *Postgres) Usage() (time.Duration, bool) { return p.d.group.Usage() }

// Stop ends the server. Its clients must be gone.
func (p *Postgres) Stop() { p.d.stopAll() }
