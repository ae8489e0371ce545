package ssh

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver"
	"github.com/berthml/berth/internal/driver/dialout"
)

// Driver runs tasks on a machine that it connects to.
type Driver struct {
	*dialout.Driver
	c        driver.Config
	log      *slog.Logger
	patience patience
}

// patience is how long a machine may be silent while it is connected to.
type patience struct {
	dial  time.Duration // until it has let the server in
	hello time.Duration // until its agent answers
	copy  time.Duration // while the program is copied there
}

var defaultPatience = patience{dial: 20 * time.Second, hello: time.Minute, copy: time.Minute}

// Open is the driver's [driver.Open].
func Open(c driver.Config) (driver.Driver, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	v, err := readDocument(c.Properties)
	if err != nil {
		return nil, err
	}
	if len(v.machines) > 0 {
		return openPool(c, v)
	}
	return openMachine(c)
}

// openMachine opens the driver of one machine.
func openMachine(c driver.Config) (*Driver, error) {
	if err := CheckAgent(c); err != nil {
		return nil, err
	}
	d, err := dialout.Open(c)
	if err != nil {
		return nil, err
	}
	out := &Driver{Driver: d.(*dialout.Driver), c: c, log: c.Log, patience: defaultPatience}
	out.RelayTo(c.Dial, errAway)
	return out, nil
}

// errAway is the error of calls to a machine that is not connected: nothing was sent.
var errAway error = berth.Errorf(berth.Unavailable, "its machine is not connected")

// Paths of the secrets in a compute's properties.
const (
	passwordPath = "properties.administratorAccount.password"
	keyPath      = "properties.administratorAccount.privateKeyData"
)

// machine is how a machine is reached, as its compute's document says.
type machine struct {
	Address, User string
	Port          int
	Jumps         []string // USER@HOST:PORT, the first one is connected to first
	HostKey       string   // that the user knows the machine has; empty: the one it shows first
	AgentKey      string   // of the server's SSH agent, or its fingerprint; empty: none
}

// readMachine reads the properties of a compute.
func readMachine(properties []byte) (machine, error) {
	var v struct {
		Properties struct {
			ResourceID string `json:"resourceId"`
			Properties struct {
				Address string `json:"address"`
				SSHPort int    `json:"sshPort"`
				Account struct {
					Username string `json:"username"`
				} `json:"administratorAccount"`
				JumpHosts []string `json:"jumpHosts"`
				HostKey   string   `json:"hostKey"`
				AgentKey  string   `json:"agentKey"`
			} `json:"properties"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(properties, &v); err != nil {
		return machine{}, berth.Errorf(berth.Invalid, "properties: %w", err)
	}
	p := v.Properties.Properties
	m := machine{Address: p.Address, User: p.Account.Username, Port: p.SSHPort, Jumps: p.JumpHosts, HostKey: p.HostKey, AgentKey: p.AgentKey}
	if m.Address == "" { // Azure's clients name the virtual machine only
		m.Address = v.Properties.ResourceID[strings.LastIndex(v.Properties.ResourceID, "/")+1:]
	}
	if m.Port == 0 {
		m.Port = 22
	}
	switch {
	case m.Address == "":
		return m, berth.Errorf(berth.Invalid, "properties.properties.address is required: the machine's host name or IP address")
	case strings.ContainsAny(m.Address, " /@\t\r\n"):
		return m, berth.Errorf(berth.Invalid, "properties.properties.address %q must be a host name or an IP address", m.Address)
	case m.User == "":
		return m, berth.Errorf(berth.Invalid, "properties.properties.administratorAccount.username is required: the account to log in with")
	case m.Port < 1 || m.Port > 65535:
		return m, berth.Errorf(berth.Invalid, "properties.properties.sshPort %d must be a port from 1 to 65535", m.Port)
	}
	if err := checkAgentKey(m.AgentKey); err != nil {
		return m, err
	}
	for _, j := range m.Jumps {
		if _, _, err := splitJump(j, m.User); err != nil {
			return m, err
		}
	}
	return m, nil
}

// Check refuses a compute that could never be connected to, and a change of where it is: its key or
// password was given for one machine and account, and its jobs are there.
func Check(old, document []byte) error {
	pool, err := readDocument(document)
	if err != nil {
		return err
	}
	if old != nil {
		was, err := readDocument(old)
		if err != nil || !reflect.DeepEqual(was.machines, pool.machines) {
			return berth.Errorf(berth.Conflict, "the machines of a compute cannot be changed; detach it and attach it again")
		}
	}
	if len(pool.machines) > 0 {
		return nil
	}
	m, err := readMachine(document)
	if err != nil || old == nil {
		return err
	}
	was, err := readMachine(old)
	if err != nil || !reflect.DeepEqual(was, m) {
		return berth.Errorf(berth.Conflict, "the address, port, account, jump hosts, host key and agent key of a machine cannot be changed; detach it and attach it again")
	}
	return nil
}

// Connect is [driver.Connector.Connect].
func (d *Driver) Connect(ctx context.Context, a driver.Access) (*driver.Connection, error) {
	m, err := readMachine(a.Properties)
	if err != nil {
		return nil, err
	}
	id, err := d.id()
	if err != nil {
		return nil, err
	}
	way, err := dial(ctx, m, a, d.c.SSHAgent, d.patience.dial)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { way.Close() })
	defer stop()
	p := place{way: way, id: id, program: d.c.Host[0], log: d.log, patience: d.patience}
	link, hello, err := p.bridge(ctx)
	if err == nil && (len(hello.ID) > 100 || dialout.Clean(hello.ID, 100) != hello.ID) {
		err = berth.Errorf(berth.Unavailable, "the machine's agent did not identify its machine")
	}
	if err != nil {
		way.Close()
		return nil, err
	}
	timer := way.within(d.patience.hello)
	ended, err := d.Accept(ctx, link)
	timer.Stop()
	if err != nil {
		link.Close()
		return nil, err
	}
	return &driver.Connection{Machine: hello.ID, Host: dialout.Clean(hello.Host, 253), Version: dialout.Clean(hello.Version, 40), HostKeys: way.hostKeys, Ended: ended}, nil
}

// id tells this server's agent on a machine from those of others. It stays the same as long as the
// compute is attached.
func (d *Driver) id() (string, error) {
	path := filepath.Join(d.c.Dir, "agent-id")
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 2*idBytes {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	raw := make([]byte, idBytes)
	rand.Read(raw) // never fails
	id := hex.EncodeToString(raw)
	if err := os.MkdirAll(d.c.Dir, 0o700); err != nil {
		return "", err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(id), 0o600); err != nil {
		return "", err
	}
	return id, os.Rename(tmp, path)
}

const idBytes = 8

// splitJump reads USER@HOST:PORT, of which only HOST must be there.
func splitJump(s, user string) (who, address string, err error) {
	who, host, found := strings.Cut(s, "@")
	if !found {
		who, host = user, s
	}
	port := "22"
	if h, p, ok := strings.Cut(host, ":"); ok && !strings.Contains(p, ":") {
		host, port = h, p
	}
	if n, perr := strconv.Atoi(port); perr != nil || n < 1 || n > 65535 || host == "" || who == "" || strings.ContainsAny(host, " /\t\r\n") {
		return "", "", berth.Errorf(berth.Invalid, "properties.properties.jumpHosts: %q must be USER@HOST:PORT", s)
	}
	return who, strings.Trim(host, "[]") + ":" + port, nil
}
