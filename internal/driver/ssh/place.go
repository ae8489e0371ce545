package ssh

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/dialout"
)

// helloMark begins the first line that a bridge writes, and needMark the one that is printed where
// its program is missing. Whatever a shell's start-up files print before is passed over.
const (
	helloMark = "BERTH-BRIDGE "
	needMark  = "BERTH-NEED "
	doneMark  = "BERTH-COPIED"
)

// maxNoise is how much start-up files may print.
const maxNoise = 64 << 10

// copyTime is how long copying the program may take, however steadily it goes.
const copyTime = 10 * time.Minute

// remoteDir is where everything lies on the machine, below the account's home.
const remoteDir = ".berth/remote"

// place puts the program on a machine and starts the bridge there.
type place struct {
	way     *way
	id      string // of the agent's folder
	program string // path of this server's own
	log     *slog.Logger
	patience
}

// hello is what a bridge says first.
type hello struct {
	ID      string `json:"id"` // of the machine
	Host    string `json:"host"`
	Version string `json:"version"`
}

// bridge starts a bridge, after copying the program if it is not there.
func (p place) bridge(ctx context.Context) (net.Conn, hello, error) {
	prog, err := programFor(p.program, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, hello{}, err
	}
	link, hi, need, err := p.begin(ctx, prog)
	if err != nil || link != nil {
		return link, hi, err
	}
	if goos, goarch, err := platform(need); err != nil {
		return nil, hi, err
	} else if goos != runtime.GOOS || goarch != runtime.GOARCH {
		if prog, err = programFor(p.program, goos, goarch); err != nil {
			return nil, hi, err
		}
		if link, hi, _, err = p.begin(ctx, prog); err != nil || link != nil {
			return link, hi, err
		}
	}
	if err := p.copy(ctx, prog); err != nil {
		return nil, hi, err
	}
	link, hi, need, err = p.begin(ctx, prog)
	if err == nil && link == nil {
		err = berth.Errorf(berth.Unavailable, "the copied program is no longer on the machine (%s)", dialout.Clean(need, 100))
	}
	return link, hi, err
}

// program is a build of Berth for a machine.
type program struct {
	path string
	hash string // of its bytes
}

// remote is the program's path on the machine, for a shell there.
func (p program) remote() string { return `"$HOME"/` + remoteDir + "/bin/berth-" + p.hash }

// programs are the hashes of programs that were read, by path, size and time.
var programs sync.Map

// programFor finds the build for a platform: this program itself, or one beside it as `make dist`
// names them.
func programFor(self, goos, goarch string) (program, error) {
	path := self
	if goos != runtime.GOOS || goarch != runtime.GOARCH {
		path = filepath.Join(filepath.Dir(self), "berth-"+goos+"-"+goarch)
	}
	info, err := os.Stat(path)
	if err != nil {
		return program{}, berth.Errorf(berth.Unsupported, "the machine is %s/%s, for which this server has no program; put berth-%s-%s (from `make dist`) next to %s", goos, goarch, goos, goarch, filepath.Base(self))
	}
	key := fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
	if h, ok := programs.Load(key); ok {
		return program{path, h.(string)}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return program{}, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return program{}, err
	}
	hash := hex.EncodeToString(h.Sum(nil)[:8])
	programs.Store(key, hash)
	return program{path, hash}, nil
}

// platform reads what uname printed.
func platform(uname string) (goos, goarch string, err error) {
	words := strings.Fields(uname)
	if len(words) != 2 {
		return "", "", berth.Errorf(berth.Unsupported, "cannot tell the machine's system from %q", dialout.Clean(uname, 100))
	}
	switch words[0] {
	case "Linux":
		goos = "linux"
	case "Darwin":
		goos = "darwin"
	default:
		return "", "", berth.Errorf(berth.Unsupported, "the machine runs %s; only Linux and macOS are supported", dialout.Clean(words[0], 40))
	}
	switch words[1] {
	case "x86_64", "amd64":
		goarch = "amd64"
	case "aarch64", "arm64":
		goarch = "arm64"
	default:
		return "", "", berth.Errorf(berth.Unsupported, "the machine's processor is %s; only amd64 and arm64 are supported", dialout.Clean(words[1], 40))
	}
	return goos, goarch, nil
}

// begin starts the bridge of a program. Where the program is missing the connection is nil and need
// is what uname says.
func (p place) begin(ctx context.Context, prog program) (link net.Conn, hi hello, need string, err error) {
	timer := p.way.within(p.hello)
	link, hi, need, err = p.greet(prog)
	if !timer.Stop() || err != nil && ctx.Err() != nil {
		return nil, hi, "", berth.Errorf(berth.Unavailable, "the machine did not start an agent within %s", p.hello)
	}
	return link, hi, need, err
}

// greet is begin without an end of its patience.
func (p place) greet(prog program) (net.Conn, hello, string, error) {
	var hi hello
	session, err := p.way.NewSession()
	if err != nil {
		return nil, hi, "", berth.Errorf(berth.Unavailable, "opening a session: %w", err)
	}
	in, err := session.StdinPipe()
	var out io.Reader
	if err == nil {
		out, err = session.StdoutPipe()
	}
	if err != nil {
		session.Close()
		return nil, hi, "", err
	}
	var said tail
	session.Stderr = &said
	script := fmt.Sprintf(`if [ -x %[1]s ]; then exec %[1]s _ssh bridge --dir "$HOME"/%[2]s/%[3]s; else echo "%[4]s$(uname -s) $(uname -m)"; fi`, prog.remote(), remoteDir, p.id, needMark)
	if err := session.Start("exec sh -c '" + script + "'"); err != nil {
		session.Close()
		return nil, hi, "", berth.Errorf(berth.Unavailable, "running a command on the machine: %w", err)
	}
	r := bufio.NewReaderSize(out, maxNoise)
	line, err := firstLine(r)
	if errors.Is(err, io.EOF) {
		_ = session.Wait() // for what it said last
	}
	if err != nil {
		session.Close()
		return nil, hi, "", berth.Errorf(berth.Unavailable, "the machine did not start an agent: %s", said.orElse(err))
	}
	if need, ok := strings.CutPrefix(line, needMark); ok {
		session.Close()
		return nil, hi, need, nil
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, helloMark)), &hi); err != nil || hi.ID == "" {
		session.Close()
		return nil, hi, "", berth.Errorf(berth.Unavailable, "unexpected output from the machine's agent: %q", dialout.Clean(line, 200))
	}
	return &link{Reader: r, WriteCloser: in, way: p.way}, hi, "", nil
}

// firstLine reads up to the first line that is ours.
func firstLine(r *bufio.Reader) (string, error) {
	for read := 0; read < maxNoise; {
		b, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			break
		}
		if err != nil {
			return "", err
		}
		read += len(b)
		line := strings.TrimRight(string(b), "\r\n")
		if strings.HasPrefix(line, helloMark) || strings.HasPrefix(line, needMark) {
			return line, nil
		}
	}
	return "", errors.New("the login shell prints too much output")
}

// copy puts a program on the machine: whole, or not at all.
func (p place) copy(ctx context.Context, prog program) error {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	f, err := os.Open(prog.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	timer := p.way.within(p.patience.copy)
	defer timer.Stop()
	session, err := p.way.NewSession()
	if err != nil {
		return berth.Errorf(berth.Unavailable, "opening a session: %w", err)
	}
	defer session.Close()
	in, err := session.StdinPipe()
	if err != nil {
		return err
	}
	var out, said tail
	session.Stdout, session.Stderr = &out, &said
	script := fmt.Sprintf(`umask 077; d="$HOME"/%[1]s/bin; t="$d"/.new-$$; mkdir -p "$d" && gzip -dc > "$t" && [ $(wc -c < "$t") -eq %[2]d ] && chmod 700 "$t" && mv "$t" %[3]s && echo %[4]s; s=$?; rm -f "$t"; exit $s`,
		remoteDir, info.Size(), prog.remote(), doneMark)
	p.log.Info("copying the program to a machine", "host", p.way.RemoteAddr().String(), "bytes", info.Size())
	err = p.way.run(ctx, "exec sh -c '"+script+"'", func() error {
		defer in.Close()
		w := bufio.NewWriterSize(steady{in, timer, p.patience.copy}, 64<<10) // gzip writes a few bytes at a time
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		_, err = io.Copy(z, f)
		if err = errors.Join(err, z.Close(), w.Flush()); err != nil {
			p.log.Debug("the program was not sent completely", "err", err) // what the machine says of it is better
		}
		return nil
	}, session)
	if err != nil || !strings.Contains(out.orElse(nil), doneMark) {
		return berth.Errorf(berth.Unavailable, "copying the program to the machine: %s", said.orElse(err))
	}
	return nil
}

// steady prolongs a timer with each write that a machine has taken.
type steady struct {
	io.Writer
	timer *time.Timer
	most  time.Duration
}

func (s steady) Write(b []byte) (int, error) {
	n, err := s.Writer.Write(b)
	if err == nil {
		s.timer.Reset(s.most)
	}
	return n, err
}

// link is the connection to an agent. Closing it ends the SSH connection.
type link struct {
	io.Reader
	io.WriteCloser
	way *way
}

func (l *link) Close() error { return l.way.Close() }

func (l *link) LocalAddr() net.Addr              { return l.way.LocalAddr() }
func (l *link) RemoteAddr() net.Addr             { return l.way.RemoteAddr() }
func (l *link) SetDeadline(time.Time) error      { return nil } // heartbeats do their work
func (l *link) SetReadDeadline(time.Time) error  { return nil }
func (l *link) SetWriteDeadline(time.Time) error { return nil }

// tail is the end of what a command said.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 1000 {
		t.b = append([]byte(nil), t.b[len(t.b)-1000:]...)
	}
	return len(p), nil
}

// orElse is what the machine said, or an error where it said nothing.
func (t *tail) orElse(err error) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := dialout.Clean(string(t.b), 500); s != "" {
		return s
	}
	if err == nil {
		return "no reason was given"
	}
	return dialout.Clean(err.Error(), 300)
}
