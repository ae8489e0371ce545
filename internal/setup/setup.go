// Package setup installs a server for a team on a machine with systemd, and removes it again.
//
// What it does is a list of steps, each with a sentence: a dry run prints them. All paths are below
// a root, which is another folder than / in tests and when an image is prepared; then nothing is
// started.
package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/auth"
	"github.com/berthml/berth/internal/config"
	"github.com/berthml/berth/internal/store"
)

// Where things are, below the root.
const (
	copied = "/usr/local/bin/berth"
	packed = "/usr/bin/berth" // of a package
	etc    = "/etc/berth"
	record = etc + "/setup.json"
	unit   = "/etc/systemd/system/" + config.Unit
)

// Team is a server for a team.
type Team struct {
	Root    string // all paths are below it
	Program string // the program to install
	Account string // the account that the server and its jobs run as
	Home    string // of the server
	Name    string // under which clients reach the server
	Listen  string // HOST:PORT
	// Certificate and Key are files of a certificate from elsewhere. ACME has the server get one by
	// itself. With neither it has one of its own authority.
	Certificate, Key string
	ACME             bool
	ACMEMail         string
	ACMEDirectory    string
	Database         string // postgres://…; empty is SQLite
	Users            []User
	Start            bool      // start the server when all is there
	Secrets          io.Writer // where the tokens of the users go, a line each
}

// User is somebody who may use the server.
type User struct {
	Name string
	Role auth.Role
	Life time.Duration // of the token; 0 is for ever
}

// A Step is something to be done.
type Step struct {
	What string // one sentence for people
	Text string // the file that it writes, where it may be shown
	do   func(ctx context.Context) error
}

// Do does it.
func (s Step) Do(ctx context.Context) error {
	if err := s.do(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.What, err)
	}
	return nil
}

// made is what a setup has made, for its removal.
type made struct {
	Home        string `json:"home"`
	Account     string `json:"account"`
	AccountMade bool   `json:"accountMade"`
	ProgramMade bool   `json:"programMade"`
	Database    bool   `json:"database"` // in PostgreSQL
}

func (t *Team) at(path string) string { return filepath.Join(t.Root, path) }

// program is the path of the program that the unit runs. One that a package has installed stays
// where the package will upgrade it.
func (t *Team) program() string {
	if t.Program == t.at(packed) {
		return packed
	}
	return copied
}

// accountHome is the account's own directory. It is apart from the home, so that jobs can be kept
// from the server's secrets.
func (t *Team) accountHome() string { return t.Home + "-account" }

// pair are the files of a certificate from elsewhere. They are in the home, which is hidden from
// jobs: those run with the server's account, and could read them anywhere else.
func (t *Team) pair() (certificate, key string) {
	dir := filepath.Join(t.Home, "tls", "own")
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

// Check says what is wrong with t.
func (t *Team) Check() error {
	host, port, err := net.SplitHostPort(t.Listen)
	switch {
	case err != nil || port == "0" || port == "":
		return berth.Errorf(berth.Invalid, "--listen: %q is not HOST:PORT; clients have to know the port", t.Listen)
	case t.Name == "" || strings.ContainsAny(t.Name, "/: \t\n"):
		return berth.Errorf(berth.Invalid, "--name: give the name under which clients reach this machine, for example ml.example.org")
	case !filepath.IsAbs(t.Home) || filepath.Clean(t.Home) != t.Home || strings.ContainsAny(t.Home, " \t\n%\"'\\$"):
		return berth.Errorf(berth.Invalid, "--dir: %q is not a full path without spaces and quotes", t.Home)
	case (t.Certificate == "") != (t.Key == ""):
		return berth.Errorf(berth.Invalid, "--cert and --key belong together")
	case t.Certificate != "" && t.ACME:
		return berth.Errorf(berth.Invalid, "--acme gets a certificate by itself; leave --cert and --key out")
	case t.ACME && port != "443":
		return berth.Errorf(berth.Invalid, "--acme: the certificate authority checks the name at port 443; use --listen %s", net.JoinHostPort(host, "443"))
	case t.Account == "" || strings.ContainsAny(t.Account, "/: \t\n%") || strings.HasPrefix(t.Account, "-"):
		return berth.Errorf(berth.Invalid, "--account: %q is not the name of an account", t.Account)
	}
	if t.Certificate != "" {
		if _, err := auth.LoadPair(t.Certificate, t.Key); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for _, u := range t.Users {
		if err := berth.CheckName("user", u.Name); err != nil {
			return err
		}
		if u.Role != auth.Admin && u.Role != auth.User && u.Role != auth.Reader {
			return berth.Errorf(berth.Invalid, "--user %s: %q is not a role; use admin, user or reader", u.Name, u.Role)
		}
		if seen[strings.ToLower(u.Name)] || strings.EqualFold(u.Name, "admin") {
			return berth.Errorf(berth.Invalid, "--user %s: the name is taken", u.Name)
		}
		seen[strings.ToLower(u.Name)] = true
	}
	return nil
}

// Plan is what has to be done, in order.
func (t *Team) Plan() ([]Step, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(t.at(record)); err == nil {
		return nil, berth.Errorf(berth.Conflict, "a server is set up here already (%s); change %s and run `systemctl restart berth`, or run `berth setup remove` first", t.at(record), t.at(filepath.Join(t.Home, config.FileName)))
	}
	for _, path := range []string{unit, filepath.Join(t.Home, config.FileName)} {
		if _, err := os.Lstat(t.at(path)); err == nil {
			return nil, berth.Errorf(berth.Conflict, "%s exists; move it away first", t.at(path))
		}
	}
	text, err := t.configuration(t.Database)
	if err != nil {
		return nil, err
	}
	shown, err := t.configuration(hidePassword(t.Database))
	if err != nil {
		return nil, err
	}
	m := &made{Home: t.Home, Account: t.Account, Database: t.Database != ""}
	var p []Step
	add := func(what, text string, do func(ctx context.Context) error) {
		p = append(p, Step{What: what, Text: text, do: do})
	}
	add("note in "+record+" what is set up, so that `berth setup remove` can undo it", "", func(context.Context) error { return t.note(m) })
	if t.Program != t.at(t.program()) {
		add("copy this program to "+copied, "", func(context.Context) error {
			m.ProgramMade = true
			return errors.Join(t.note(m), copyFile(t.Program, t.at(copied), 0o755))
		})
	}
	if t.hasAccounts() && !t.accountExists() {
		add(fmt.Sprintf("create the account %s, without a password, with the directory %s", t.Account, t.accountHome()), "", func(ctx context.Context) error {
			m.AccountMade = true
			return errors.Join(t.note(m), t.createAccount(ctx))
		})
	}
	add("create the home "+t.Home+", for its account only", "", func(context.Context) error {
		return errors.Join(private(t.at(t.Home)), private(t.at(t.accountHome())), t.own(t.accountHome()))
	})
	if t.Certificate != "" {
		cert, key := t.pair()
		add("copy the certificate and its key to "+filepath.Dir(key)+", where jobs cannot read them", "", func(context.Context) error {
			return errors.Join(copyFile(t.Certificate, t.at(cert), 0o600), copyFile(t.Key, t.at(key), 0o600))
		})
	}
	add("write "+filepath.Join(t.Home, config.FileName), shown, func(context.Context) error {
		return writeFile(t.at(filepath.Join(t.Home, config.FileName)), []byte(text), 0o600)
	})
	add("note in the home that the unit "+config.Unit+" runs its server, so that no command starts another", "", func(context.Context) error {
		return writeFile(t.at(filepath.Join(t.Home, config.ServiceFile)), []byte(config.Unit+"\n"), 0o600)
	})
	add("write "+unit, t.Unit(), func(context.Context) error { return writeFile(t.at(unit), []byte(t.Unit()), 0o644) })
	if len(t.Users) > 0 {
		var names []string
		for _, u := range t.Users {
			names = append(names, fmt.Sprintf("%s (%s)", u.Name, u.Role))
		}
		add("create the users "+strings.Join(names, ", ")+", and print their tokens", "", t.createUsers)
	}
	if t.mayOwn() {
		add("give the home to the account "+t.Account, "", func(context.Context) error { return t.own(t.Home) })
	}
	if t.Start && t.live() {
		add("start the server now and at every boot: systemctl enable --now "+config.Unit, "", func(ctx context.Context) error {
			return errors.Join(command(ctx, "systemctl", "daemon-reload"), command(ctx, "systemctl", "enable", "--now", config.Unit))
		})
	}
	return p, nil
}

// mayOwn says whether files can be given to the account: below another root it may not be there.
func (t *Team) mayOwn() bool { return t.Below() == "" || t.hasAccounts() }

// Below is the root, where it is not that of this system.
func (t *Team) Below() string {
	if filepath.Clean("/"+t.Root) == "/" {
		return ""
	}
	return t.Root
}

// Remaining is what is left to do on the machine that the root is for.
func (t *Team) Remaining() (list []string) {
	if !t.mayOwn() {
		list = append(list,
			fmt.Sprintf("useradd --system --user-group --home-dir %s --no-create-home --shell /bin/bash %s", t.accountHome(), t.Account),
			fmt.Sprintf("chown -R %s:%s %s %s", t.Account, t.Account, t.Home, t.accountHome()))
	}
	if !t.Start || !t.live() {
		list = append(list, "systemctl enable --now "+config.Unit)
	}
	return list
}

// private makes a folder for its owner only; those above it are everybody's.
func private(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Advertise is the address of the server for clients.
func (t *Team) Advertise() string {
	_, port, _ := net.SplitHostPort(t.Listen) // Check has seen it
	if port == "443" {
		return "https://" + t.Name
	}
	return "https://" + net.JoinHostPort(t.Name, port)
}

// configuration is the text of berth.yaml with a database.
func (t *Team) configuration(database string) (string, error) {
	c := map[string]any{"listen": t.Listen, "advertise": t.Advertise()}
	if database != "" {
		c["database"] = database
	}
	if t.Certificate != "" {
		c["tls_certificate"], c["tls_key"] = t.pair()
	}
	if t.ACME {
		c["acme"] = true
		for key, value := range map[string]string{"acme_email": t.ACMEMail, "acme_directory": t.ACMEDirectory} {
			if value != "" {
				c[key] = value
			}
		}
	}
	text, err := yaml.Marshal(c)
	return "# Written by `berth setup team`. docs/server.md describes every key; restart the server after a change.\n" + string(text), err
}

// hidePassword is the address of a database without a password.
func hidePassword(database string) string {
	if database == "" {
		return ""
	}
	u, err := url.Parse(database)
	if err != nil || u.Host == "" {
		return "(not shown: it is not an address)"
	}
	q := u.Query()
	for name := range q {
		if strings.Contains(strings.ToLower(name), "password") {
			q.Set(name, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return u.Redacted()
}

// createUsers makes the users' tokens before the server runs.
func (t *Team) createUsers(ctx context.Context) error {
	cfg, err := config.Load(t.at(t.Home))
	if err != nil {
		return err
	}
	keys, err := auth.LoadKeys(cfg.Home)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, cfg.DatabaseURL(), store.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	authority := auth.NewAuthority(keys, db)
	for _, u := range t.Users {
		token := auth.Token{Name: u.Name, User: u.Name, Role: u.Role}
		if u.Life > 0 {
			token.Expires = time.Now().Add(u.Life).UTC().Truncate(time.Second)
		}
		secret, err := authority.Create(ctx, token)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(t.Secrets, "%s\t%s\n", u.Name, secret); err != nil {
			return err
		}
	}
	return nil
}

func (t *Team) note(m *made) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(t.at(record), append(text, '\n'), 0o644)
}

// writeFile writes a file so that it is the old one or the new one.
func writeFile(path string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone when it was renamed
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func copyFile(from, to string, mode fs.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, text, mode)
}

// Removal is what is removed.
type Removal struct {
	Root     string
	KeepHome bool // keep the home, with all data
}

// Plan is what has to be done, in order.
func (r Removal) Plan() ([]Step, error) {
	t := &Team{Root: r.Root}
	text, err := os.ReadFile(t.at(record))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, berth.Errorf(berth.NotFound, "no server was set up here: there is no %s; a home that --keep-home left is a folder like others, to be removed by hand", t.at(record))
	}
	var m made
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return nil, err
	}
	t.Home, t.Account = m.Home, m.Account
	if !filepath.IsAbs(t.Home) || filepath.Clean(t.Home) == "/" || t.Account == "" {
		return nil, berth.Errorf(berth.Invalid, "%s is damaged", t.at(record))
	}
	var p []Step
	add := func(what string, do func(ctx context.Context) error) { p = append(p, Step{What: what, do: do}) }
	remove := func(path string) func(context.Context) error {
		return func(context.Context) error { return os.RemoveAll(t.at(path)) }
	}
	if t.live() {
		add("stop the server, with all jobs that it runs on this machine, and do not start it again", func(ctx context.Context) error {
			err := command(ctx, "systemctl", "disable", "--now", config.Unit)
			_ = command(ctx, "systemctl", "kill", "--signal=SIGKILL", config.Unit) // nothing may be left to kill
			return err
		})
	}
	add("remove "+unit, remove(unit))
	if t.live() {
		add("have systemd forget it", func(ctx context.Context) error { return command(ctx, "systemctl", "daemon-reload") })
	}
	if r.KeepHome {
		add("keep the home "+t.Home, func(context.Context) error {
			return os.RemoveAll(t.at(filepath.Join(t.Home, config.ServiceFile)))
		})
	} else {
		add("remove the home "+t.Home+", with all jobs, files and keys", remove(t.Home))
	}
	if m.AccountMade && !r.KeepHome {
		add("remove the account "+t.Account, t.removeAccount)
	}
	if !r.KeepHome {
		add("remove the account's directory "+t.accountHome(), remove(t.accountHome()))
	}
	if m.ProgramMade {
		add("remove "+copied, remove(copied))
	}
	if r.KeepHome {
		add("remove "+record, remove(record))
	} else {
		add("remove "+etc, remove(etc))
	}
	if m.Database && !r.KeepHome {
		add("leave the PostgreSQL database as it is: drop it with dropdb", func(context.Context) error { return nil })
	}
	return slices.Clip(p), nil
}
