package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// session is one run of the program: where it writes, how, and the client once a command needs one.
type session struct {
	out, err *stream
	cfg      client.Config
	format   format
	program  string // how it was called where that is az's way: az, az ml, berth ml
	verbose  bool
	debug    bool
	quiet    bool // --only-show-errors
	noStart  bool // do not start a local server
	home     string
	here     bool   // --local: the home is that of the server for this machine
	server   string // the name under which it was saved by `berth login`
	client   *client.Client
	left     []string // of the folders that were uploaded, what stayed here without being a secret or a cache
	cleanup  []func()
}

// stream is an output with what is known about its other end.
type stream struct {
	*os.File
	tty   bool
	color bool
}

func newSession() *session {
	s := &session{out: newStream(os.Stdout), err: newStream(os.Stderr)}
	return s
}

func newStream(f *os.File) *stream {
	tty := term.IsTerminal(int(f.Fd()))
	return &stream{File: f, tty: tty, color: tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// width is the number of columns, 0 when there is no end of the line.
func (s *stream) width() int {
	if !s.tty {
		return 0
	}
	w, _, err := term.GetSize(int(s.Fd()))
	if err != nil || w <= 0 {
		return 80
	}
	return w
}

// height is the number of lines, 0 when there is no end.
func (s *stream) height() int {
	if !s.tty {
		return 0
	}
	_, h, err := term.GetSize(int(s.Fd()))
	if err != nil || h <= 0 {
		return 24
	}
	return h
}

// flags adds what every command takes.
func (s *session) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&s.home, "home", "", "folder of the local server (BERTH_HOME)")
	f.StringVarP(&s.cfg.Workspace.Name, "workspace-name", "w", "", "workspace (BERTH_WORKSPACE)")
	f.StringVarP(&s.cfg.Workspace.Group, "resource-group", "g", "", "resource group of the workspace")
	f.StringVar(&s.cfg.Workspace.Subscription, "subscription", "", "subscription of the workspace")
	f.BoolVar(&s.verbose, "verbose", false, "print more messages")
	f.BoolVar(&s.debug, "debug", false, "print every request")
	f.BoolVar(&s.quiet, "only-show-errors", false, "print nothing but errors")
	if s.format.az { // of az's policy checks
		f.String("change-reference", "", "accepted for compatibility with az; has no effect")
		f.Bool("acquire-policy-token", false, "accepted for compatibility with az; has no effect")
		f.Lookup("change-reference").Hidden, f.Lookup("acquire-policy-token").Hidden = true, true
	}
}

// config is which server the environment, the flags and `berth login` name.
func (s *session) config() (client.Config, error) {
	cfg, err := s.localConfig()
	if err != nil || cfg.URL != "" && os.Getenv("BERTH_SERVER") == "" {
		return cfg, err
	}
	chosen, err := s.chosenServer()
	if err == nil && chosen != nil {
		cfg.URL, cfg.Token, cfg.CA, s.server = chosen.URL, chosen.Token, chosen.CA, chosen.Name
	}
	return cfg, err
}

// whence is where the name of a server elsewhere comes from.
func (s *session) whence() string {
	if s.server != "" {
		return "you are logged in to " + s.server + ","
	}
	return "BERTH_URL points at"
}

// localConfig is which server the environment and the flags name.
func (s *session) localConfig() (client.Config, error) {
	cfg, err := client.FromEnv(func(key string) string {
		if key == "BERTH_HOME" && s.home != "" {
			return s.home
		}
		if key == "BERTH_URL" && s.home != "" {
			return "" // a home named on the command line is meant
		}
		return os.Getenv(key)
	})
	for _, o := range []struct{ to, by *string }{
		{&cfg.Workspace.Name, &s.cfg.Workspace.Name},
		{&cfg.Workspace.Group, &s.cfg.Workspace.Group},
		{&cfg.Workspace.Subscription, &s.cfg.Workspace.Subscription},
	} {
		if *o.by != "" {
			*o.to = *o.by
		}
	}
	if s.here { // where there is one workspace, whatever the defaults say
		cfg.Workspace = berth.Workspace{}
		return cfg, err
	}
	if err == nil {
		err = s.defaults(cfg.Home, &cfg.Workspace)
	}
	return cfg, err
}

// open is the client of the server that is configured; a local server that does not run is started.
func (s *session) open(ctx context.Context) (*client.Client, error) {
	if s.client != nil {
		return s.client, nil
	}
	cfg, err := s.config()
	if err != nil {
		return nil, err
	}
	if !s.noStart {
		cfg.Start = func(ctx context.Context) error {
			return s.start(ctx, cfg.Home, true)
		}
	}
	if s.debug {
		cfg.Trace = func(r *http.Request, status string, took time.Duration) {
			_, below, _ := strings.Cut(r.URL.Path, "/workspaces/")
			if below == "" {
				below = r.URL.Path
			}
			s.hint("%s %s: %s, %s", r.Method, below, status, span(took)) // without the query, which may hold a signature
		}
	}
	s.cfg = cfg
	s.client, err = client.Open(ctx, cfg)
	return s.client, err
}

func (s *session) close() {
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		s.cleanup[i]()
	}
	if s.client != nil {
		s.client.Close()
	}
}

// say tells the user something on standard error.
func (s *session) say(format string, args ...any) {
	if !s.quiet {
		fmt.Fprintf(s.err, format+"\n", args...)
	}
}

// hint is say in a quieter voice.
func (s *session) hint(format string, args ...any) {
	if !s.quiet {
		fmt.Fprintln(s.err, s.paint(s.err, dim, fmt.Sprintf(format, args...)))
	}
}

// warn tells the user of something that may not be what they meant.
func (s *session) warn(format string, args ...any) {
	if !s.quiet {
		fmt.Fprintln(s.err, s.paint(s.err, yellow, "warning:")+" "+legible(fmt.Sprintf(format, args...)))
	}
}

// Colours, as ANSI codes.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	cyan   = "36"
)

// paint colours text when w shows colours.
func (s *session) paint(w *stream, code, text string) string {
	if !w.color || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
