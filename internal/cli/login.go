package cli

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// logins is the user's own file of the servers they use. It has secrets.
type logins struct {
	// Current is the name of the server that commands use; empty is that of this machine.
	Current string  `json:"current,omitempty"`
	Servers []login `json:"servers,omitempty"`
}

type login struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Token string `json:"token"`
	CA    string `json:"ca,omitempty"`   // file with its certificate authority, beside this one
	User  string `json:"user,omitempty"` // who the token is for, when it was saved
}

// localServer is the name of the server of this machine.
const localServer = "local"

func loginsPath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", berth.Errorf(berth.Invalid, "there is no folder for your settings; set HOME")
	}
	return filepath.Join(dir, "berth", "servers.json"), nil
}

// readLogins reads the file. One that is not there is empty.
func readLogins() (*logins, error) {
	path, err := loginsPath()
	if err != nil {
		return &logins{}, nil //nolint:nilerr // whoever has no settings has no servers
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &logins{}, nil
	}
	if err != nil {
		return nil, berth.Errorf(berth.Invalid, "the list of your servers cannot be read: %s", plainError(err))
	}
	var l logins
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, berth.Errorf(berth.Invalid, "%s, the list of your servers, is damaged; delete it and run `berth login` again", path)
	}
	return &l, nil
}

func (l *logins) write() error {
	path, err := loginsPath()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return berth.Errorf(berth.Invalid, "the list of your servers cannot be written: %s", plainError(err))
	}
	return replaceFile(path, append(b, '\n'))
}

func (l *logins) find(name string) *login {
	if i := slices.IndexFunc(l.Servers, func(s login) bool { return strings.EqualFold(s.Name, name) }); i >= 0 {
		return &l.Servers[i]
	}
	return nil
}

// chosenServer is the login that commands use, nil for the server of this machine: the one that
// BERTH_SERVER names, or else the current one, unless a variable names another server or home.
func (s *session) chosenServer() (*login, error) {
	name := os.Getenv("BERTH_SERVER")
	if s.home != "" || name == localServer || name == "" && (os.Getenv("BERTH_URL") != "" || os.Getenv("BERTH_HOME") != "") {
		return nil, nil //nolint:nilnil // it is the server of this machine
	}
	l, err := readLogins()
	if err != nil {
		return nil, err
	}
	if name == "" {
		return l.find(l.Current), nil
	}
	if found := l.find(name); found != nil {
		return found, nil
	}
	return nil, berth.Errorf(berth.NotFound, "BERTH_SERVER is %q, and you are logged in to no server of that name; `berth login` lists them", name)
}

func loginCommand(s *session) *cobra.Command {
	var name, ca, tokenFile string
	cmd := &cobra.Command{
		Use:   "login [URL | NAME]",
		Short: "Log in to a server of a team, or change between servers",
		Long: "With the URL of a server, asks for a token, checks it and saves both for you alone; commands then use that server.\n" +
			"With the name of a server that was saved, changes to it; `berth login local` changes to the server of this machine.\n" +
			"Without either, lists the servers. An administrator gives you the token, with `berth user add`.\n\n" +
			"  berth login https://berth.example.org:7070\n" +
			"  berth login https://berth.example.org:7070 --ca ca.pem < token.txt\n" +
			"  berth login local",
		Args: maxArgs(1), ValidArgsFunction: completeLogin,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			l, err := readLogins()
			if err != nil {
				return err
			}
			switch {
			case len(args) == 0:
				return s.listLogins(l)
			case args[0] == localServer || l.find(args[0]) != nil:
				return s.switchTo(l, args[0])
			}
			return s.login(cmd.Context(), l, args[0], name, ca, tokenFile)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&name, "name", "n", "", "name for the server (default: its host)")
	f.StringVar(&ca, "ca", "", "file with the server's certificate authority, where its certificate is not a public one")
	f.StringVar(&tokenFile, "token-file", "", "file with the token (default: asks, or reads standard input)")
	s.format.flags(cmd)
	return cmd
}

func logoutCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "logout [NAME]", Short: "Forget a server and its token", Args: maxArgs(1), ValidArgsFunction: completeLogin,
		Long: "Forgets a server that was saved by `berth login`, and its token: the current one unless one is named. The token stays valid;\n`berth token revoke` ends it.",
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := readLogins()
			if err != nil {
				return err
			}
			name := l.Current
			if len(args) > 0 {
				name = args[0]
			}
			found := l.find(name)
			if found == nil {
				return berth.Errorf(berth.NotFound, "you are not logged in to %s; `berth login` lists your servers", orElse(name, "a server"))
			}
			gone := *found
			l.Servers = slices.DeleteFunc(l.Servers, func(x login) bool { return x.Name == gone.Name })
			if strings.EqualFold(l.Current, gone.Name) {
				l.Current = ""
			}
			if err := l.write(); err != nil {
				return err
			}
			if gone.CA != "" {
				_ = os.Remove(gone.CA) // a copy that nobody uses
			}
			s.say("forgot %s, %s", gone.Name, gone.URL)
			return nil
		},
	}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// completeLogin offers the names of servers.
func completeLogin(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	l, err := readLogins()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := []string{localServer}
	for _, x := range l.Servers {
		names = append(names, x.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (s *session) listLogins(l *logins) error {
	type row struct {
		Name    string `json:"name"`
		URL     string `json:"url,omitempty"`
		User    string `json:"user,omitempty"`
		Current bool   `json:"current"`
	}
	rows := []row{{Name: localServer, Current: l.Current == ""}}
	for _, x := range l.Servers {
		rows = append(rows, row{x.Name, x.URL, x.User, strings.EqualFold(x.Name, l.Current)})
	}
	if s.format.chosen() {
		return s.print(rows)
	}
	t := table{header: []string{"NAME", "USER", "", "URL"}}
	for _, r := range rows {
		mark := ""
		if r.Current {
			mark = "current"
		}
		t.add(cell{r.Name, ""}, cell{r.User, ""}, cell{mark, green}, cell{orElse(r.URL, "the server of this machine"), ""})
	}
	return s.printRows(t)
}

func (s *session) switchTo(l *logins, name string) error {
	l.Current = ""
	where := "the server of this machine"
	if found := l.find(name); found != nil && name != localServer {
		l.Current, where = found.Name, found.Name+", "+found.URL
	}
	if err := l.write(); err != nil {
		return err
	}
	s.say("commands use %s", where)
	s.warnOverridden()
	return nil
}

// warnOverridden says that a variable is stronger than what was saved.
func (s *session) warnOverridden() {
	for _, key := range []string{"BERTH_SERVER", "BERTH_URL", "BERTH_HOME"} {
		if value := os.Getenv(key); value != "" {
			s.warn("%s is set to %s, and is used before that; unset it", key, value)
			return
		}
	}
}

// login checks a token with its server and saves both.
func (s *session) login(ctx context.Context, l *logins, address, name, ca, tokenFile string) error {
	if !strings.Contains(address, "://") {
		if !strings.ContainsAny(address, ".:") {
			return usagef("%s is neither the URL of a server nor the name of one that was saved; `berth login` lists them, a URL is https://HOST:PORT", address)
		}
		address = "https://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return usagef("%s is not the URL of a server; it must be https://HOST:PORT", address)
	}
	if name == "" {
		name = u.Hostname()
	}
	if name == localServer || strings.ContainsAny(name, "/\\ \t") {
		return usagef("--name %s: choose another name, without spaces and slashes", name)
	}
	if ca != "" {
		if _, err := os.Stat(ca); err != nil {
			return berth.Errorf(berth.Invalid, "--ca: %s", plainError(err))
		}
	}
	token, err := s.askToken(address, tokenFile)
	if err != nil {
		return err
	}
	cfg, err := s.localConfig()
	if err != nil {
		return err
	}
	cfg.URL, cfg.Token, cfg.CA = strings.TrimSuffix(address, "/"), token, ca
	c, err := client.Open(ctx, cfg)
	if err != nil {
		return loginError(err, ca)
	}
	defer c.Close()
	about, err := c.About(ctx)
	if err != nil {
		return loginError(err, ca)
	}
	entry := login{Name: name, URL: cfg.URL, Token: token, User: about.User}
	if entry.CA, err = keepCA(name, ca); err != nil {
		return err
	}
	l.Servers = append(slices.DeleteFunc(l.Servers, func(x login) bool { return strings.EqualFold(x.Name, name) }), entry)
	l.Current = name
	if err := l.write(); err != nil {
		return err
	}
	s.say("logged in to %s (%s) as %s, %s", s.paint(s.err, bold, name), cfg.URL, about.User, about.Role)
	s.hint("commands use this server now; `berth login local` goes back to that of this machine")
	s.warnOverridden()
	return nil
}

// loginError says what to do about a login that failed.
func loginError(err error, ca string) error {
	var authority x509.UnknownAuthorityError
	switch {
	case berth.CodeOf(err) == berth.Unauthenticated:
		return berth.Errorf(berth.Unauthenticated, "the server does not know this token; ask its administrator for another (`berth user rotate NAME`)")
	case errors.As(err, &authority) && ca == "":
		return berth.Errorf(berth.Denied, "the server's certificate is signed by an authority that this machine does not trust; give a copy of the file tls/ca.pem of its home with --ca")
	}
	return err
}

// keepCA copies a certificate authority to where it stays.
func keepCA(name, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", berth.Errorf(berth.Invalid, "--ca: %s", plainError(err))
	}
	file, err := loginsPath()
	if err != nil {
		return "", err
	}
	to := filepath.Join(filepath.Dir(file), strings.ToLower(name)+".ca.pem")
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	return to, replaceFile(to, b)
}

// askToken reads a token: from a file, from BERTH_TOKEN, from a person without showing it, or from
// standard input.
func (s *session) askToken(address, file string) (string, error) {
	var text string
	switch {
	case file != "":
		b, err := os.ReadFile(file)
		if err != nil {
			return "", berth.Errorf(berth.Invalid, "--token-file: %s", plainError(err))
		}
		text = string(b)
	case os.Getenv("BERTH_TOKEN") != "":
		text = os.Getenv("BERTH_TOKEN")
	case term.IsTerminal(int(os.Stdin.Fd())):
		b, err := askHidden(s.err, "token for "+address+": ")
		fmt.Fprintln(s.err)
		if err != nil {
			return "", berth.Errorf(berth.Invalid, "no token was given")
		}
		text = string(b)
	default:
		text, _ = bufio.NewReader(os.Stdin).ReadString('\n') // what ends without a line break is a token too
	}
	if text = strings.TrimSpace(text); text == "" {
		return "", usagef("no token was given; an administrator of the server makes one with `berth user add NAME`")
	}
	return text, nil
}
