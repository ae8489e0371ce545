package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// sshOptions is what ssh was asked for.
type sshOptions struct {
	stdio, config, install bool
	known                  string
}

func sshCommand(s *session) *cobra.Command {
	var o sshOptions
	cmd := &cobra.Command{
		Use:   "ssh NAME [-- COMMAND]",
		Short: "Open a shell or run a command on a compute instance or in a running job",
		Long: "Opens a shell on a compute instance or beside the command of a running job, or runs a command there. The connection goes\n" +
			"through the server, with your token. In a job, it has the job's directory, environment and limits, and ends with it.\n\n" +
			"  berth ssh mybox                    a shell\n" +
			"  berth ssh mybox -- nvidia-smi      a command\n" +
			"  berth ssh myjob -- ps aux          a command in a job\n" +
			"  berth ssh --config --install       then `ssh mybox`, scp, rsync and VS Code work too",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.config || o.install:
				return s.sshConfig(cmd.Context(), o.install)
			case len(args) == 0:
				return usagef("say which instance or job: `berth ssh NAME`")
			case o.stdio:
				return s.sshStdio(cmd.Context(), strings.TrimSuffix(args[0], sshSuffix), o.known)
			}
			return s.sshRun(cmd.Context(), args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.stdio, "stdio", false, "serve as ssh's ProxyCommand")
	f.StringVar(&o.known, "known-hosts", "", "with --stdio: store the instance's host key in this file")
	f.BoolVar(&o.config, "config", false, "print an ssh configuration")
	f.BoolVar(&o.install, "install", false, "install it in ~/.ssh")
	f.Lookup("known-hosts").Hidden = true
	return cmd
}

// connectSSHVerb is compute connect-ssh, as az has it.
func connectSSHVerb(s *session, n noun) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "connect-ssh [NAME] [-- COMMAND]", Short: "Open a shell on a compute instance", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args
			if t.name == "" && len(args) > 0 {
				t.name, command = args[0], args[1:]
			}
			if err := t.need(n, nil); err != nil {
				return err
			}
			return s.sshRun(cmd.Context(), t.name, command)
		},
	}
	t.flags(cmd, n)
	cmd.Flags().StringP("private-key-file-path", "f", "", "accepted for compatibility with az; no key is needed")
	cmd.Flags().Lookup("private-key-file-path").Hidden = true
	s.format.flags(cmd) // az's, although there is nothing to print
	return cmd
}

// sshDial opens an ssh connection to an instance. Its host key comes from the server, which is
// trusted already.
func (s *session) sshDial(ctx context.Context, name string) (*ssh.Client, error) {
	c, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	i, err := c.Instance(ctx, name)
	if berth.CodeOf(err) == berth.NotFound {
		return s.shellIn(ctx, c, name)
	}
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(i.HostKey))
	if err != nil {
		return nil, berth.Errorf(berth.Conflict, "instance %s is %s; start it with `berth compute start -n %s`", i.Name, i.State, i.Name)
	}
	conn, err := c.SSH(ctx, i)
	if err != nil {
		return nil, err
	}
	sc, channels, requests, err := ssh.NewClientConn(conn, i.Name, &ssh.ClientConfig{User: "berth", HostKeyCallback: ssh.FixedHostKey(key)})
	if err != nil {
		conn.Close()
		return nil, berth.Errorf(berth.Unavailable, "instance %s: %w", i.Name, err)
	}
	return ssh.NewClient(sc, channels, requests), nil
}

// shellIn opens an ssh connection into a job. The server itself has the other end of it.
func (s *session) shellIn(ctx context.Context, c *client.Client, name string) (*ssh.Client, error) {
	j, err := s.job(ctx, c, name)
	if berth.CodeOf(err) == berth.NotFound {
		return nil, berth.Errorf(berth.NotFound, "there is no compute instance and no job %s in workspace %s", name, c.Workspace.Name)
	}
	if err != nil {
		return nil, err
	}
	conn, err := c.Shell(ctx, j.Name)
	if err != nil {
		return nil, err
	}
	trust := func(string, net.Addr, ssh.PublicKey) error { return nil }
	sc, channels, requests, err := ssh.NewClientConn(conn, j.Name, &ssh.ClientConfig{User: "berth", HostKeyCallback: trust})
	if err != nil {
		conn.Close()
		return nil, berth.Errorf(berth.Unavailable, "job %s: %w", j.Name, err)
	}
	return ssh.NewClient(sc, channels, requests), nil
}

// sshRun runs a shell or a command and ends with its exit code.
func (s *session) sshRun(ctx context.Context, name string, command []string) error {
	conn, err := s.sshDial(ctx, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	x, err := conn.NewSession()
	if err != nil {
		return err
	}
	defer x.Close()
	x.Stdout, x.Stderr = os.Stdout, os.Stderr
	in, err := x.StdinPipe()
	if err != nil {
		return err
	}
	for _, k := range []string{"LANG", "LC_ALL", "LC_CTYPE", "COLORTERM"} {
		if v := os.Getenv(k); v != "" {
			_ = x.Setenv(k, v) // nice to have
		}
	}
	interactive := len(command) == 0 && term.IsTerminal(int(os.Stdin.Fd())) && s.out.tty
	if interactive {
		restore, err := s.rawTerminal(x)
		if err != nil {
			return err
		}
		defer restore()
	}
	go func() { // until there is no more, or the program ends
		_, _ = io.Copy(in, os.Stdin)
		in.Close()
	}()
	if len(command) == 0 {
		if err = x.Shell(); err == nil {
			err = x.Wait()
		}
	} else {
		err = x.Run(strings.Join(command, " ")) // as ssh does it
	}
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		return exitError(exit.ExitStatus())
	case err != nil:
		return berth.Errorf(berth.Unavailable, "the connection to %s ended: %w", name, err)
	}
	return nil
}

// rawTerminal gives the session this terminal.
func (s *session) rawTerminal(x *ssh.Session) (restore func(), err error) {
	fd := int(os.Stdin.Fd())
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		cols, rows = 80, 24
	}
	kind := os.Getenv("TERM")
	if kind == "" {
		kind = "xterm-256color"
	}
	if err := x.RequestPty(kind, rows, cols, ssh.TerminalModes{}); err != nil {
		return nil, err
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	stop := watchSize(func() {
		if cols, rows, err := term.GetSize(fd); err == nil {
			_ = x.WindowChange(rows, cols)
		}
	})
	return func() {
		stop()
		_ = term.Restore(fd, old)
	}, nil
}

// sshStdio is the connection for somebody else's ssh.
func (s *session) sshStdio(ctx context.Context, name, known string) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	i, err := c.Instance(ctx, name)
	if err != nil {
		return err
	}
	conn, err := c.SSH(ctx, i)
	if err != nil {
		return err
	}
	defer conn.Close()
	if known != "" && i.HostKey != "" { // before ssh looks at it
		for _, alias := range []string{hostAlias(c, i.Name), strings.ToLower(i.Name) + sshSuffix} {
			if err := keepHostKey(known, alias, i.HostKey); err != nil {
				s.warn("%v", err)
			}
		}
	}
	go func() { // until there is no more, or the program ends
		_, _ = io.Copy(conn, os.Stdin)
		if w, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// sshSuffix makes the name of an instance one of a host.
const sshSuffix = ".berth"

// hostAlias is the name under which an instance's host key is known.
func hostAlias(c *client.Client, name string) string {
	return strings.ToLower("berth-" + c.Workspace.Group + "-" + c.Workspace.Name + "-" + name)
}

// keepHostKey puts a host's key into a file of known ones, in place of an older one.
func keepHostKey(path, alias, key string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	line := alias + " " + key + "\n"
	var b bytes.Buffer
	for l := range strings.Lines(string(old)) {
		if l == line {
			return nil
		}
		if !strings.HasPrefix(l, alias+" ") {
			b.WriteString(l)
		}
	}
	b.WriteString(line)
	return replaceFile(path, b.Bytes())
}

func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone when renamed
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o600), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// sshConfig writes what ssh's configuration needs so that `ssh NAME` goes through this program.
func (s *session) sshConfig(ctx context.Context, install bool) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(user, ".ssh", "berth")
	text, err := s.sshText(ctx, c, filepath.Join(dir, "known_hosts"))
	if err != nil {
		return err
	}
	if !install {
		_, err := io.WriteString(s.out, text)
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, "config"), []byte(text)); err != nil {
		return err
	}
	main := filepath.Join(user, ".ssh", "config")
	old, err := os.ReadFile(main)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	const include = "Include berth/config\n"
	if !strings.Contains(string(old), include) {
		// Above everything: what comes after a Host line is only for that host.
		if err := replaceFile(main, append([]byte(include+"\n"), old...)); err != nil {
			return err
		}
	}
	s.say("~/.ssh/config includes %s; `ssh NAME` reaches your instances, `ssh NAME%s` those you make later", filepath.Join(dir, "config"), sshSuffix)
	return nil
}

func (s *session) sshText(ctx context.Context, c *client.Client, known string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	words := []string{sshQuote(exe)}
	if c.Local() {
		words = append(words, "--home", sshQuote(s.cfg.Home))
	}
	words = append(words, "-w", sshQuote(c.Workspace.Name), "-g", sshQuote(c.Workspace.Group), "ssh", "--stdio", "--known-hosts", sshQuote(known), "%n")
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by `berth ssh --config`; write it again for instances that are made later, or call them NAME%s.\n", sshSuffix)
	if !c.Local() {
		b.WriteString("# The server is that of BERTH_URL, with BERTH_TOKEN: both must be set where ssh is called.\n")
	}
	block := func(pattern, alias string) {
		fmt.Fprintf(&b, "\nHost %s\n  User berth\n%s  UserKnownHostsFile %s\n  StrictHostKeyChecking yes\n  ProxyCommand %s\n", pattern, alias, sshQuote(known), strings.Join(words, " "))
	}
	for d, err := range c.List(ctx, url.Values{}, "computes") {
		if err != nil {
			return "", err
		}
		if i, ok := client.AsInstance(d); ok {
			block(i.Name, "  HostKeyAlias "+hostAlias(c, i.Name)+"\n")
		}
	}
	block("*"+sshSuffix, "")
	return b.String(), nil
}

func sshQuote(s string) string {
	if strings.ContainsAny(s, " \t\"\\") {
		return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"`
	}
	return s
}

// openBrowser shows an address in the user's browser.
func openBrowser(ctx context.Context, u string) error {
	name, args := "xdg-open", []string{u}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", u}
	}
	return exec.CommandContext(ctx, name, args...).Run()
}
