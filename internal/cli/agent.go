package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/dialout"
	"github.com/berthml/berth/internal/driver/local"
)

// agentCommand is about machines that connect to the server by themselves.
func agentCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "agent", Short: "Run jobs on a machine that connects to the server and opens no port", Args: cobra.ArbitraryArgs, RunE: group,
		Long: "An agent runs on a machine, connects to the server and runs its jobs.\n\n" +
			"  berth compute attach -n laptop --type agent     name the machine, wherever you use the server\n" +
			"  berth agent join laptop -f laptop.json          create the file that it joins with; it contains a secret\n" +
			"  berth agent run --join laptop.json              on the machine itself\n\n" +
			"If you use the server from the machine itself, `berth compute attach -n laptop --this-machine` does all three.",
	}
	cmd.AddCommand(agentJoin(s), agentRun(s), agentStop(s))
	return cmd
}

func agentJoin(s *session) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "join NAME [-f FILE]", Short: "Create the file that a machine joins with; an earlier one becomes invalid", Args: oneArg("name of a compute"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			j, b, err := join(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if file == "" {
				_, err = s.out.Write(b)
				return err
			}
			if err := writePrivate(file, b); err != nil {
				return err
			}
			s.hint("copy %s to the machine and run there: berth agent run --join %s\n"+
				"whoever has the file can take the jobs of %s; `berth run` does not upload it with the code of its folder", file, filepath.Base(file), j.Compute)
			s.warnLoopback(j.Server)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write (default: standard output)")
	return cmd
}

func agentRun(s *session) *cobra.Command {
	var dir, join, server string
	var slots int
	cmd := &cobra.Command{
		Use: "run [--join FILE]", Short: "Connect this machine and run jobs until Ctrl-C; running jobs continue", Args: noArgs,
		Long: "Connects this machine to the server and runs the jobs of its compute. The file of the first --join is stored in the agent's folder, so\n" +
			"later `berth agent run` is enough. If the connection is lost or the agent ends, jobs keep running, and the next agent in the\n" +
			"same folder takes them over.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := s.agentDir(dir)
			if err != nil {
				return err
			}
			level := slog.LevelInfo
			if s.verbose || s.debug {
				level = slog.LevelDebug
			}
			a := dialout.Agent{Log: slog.New(s.logHandler(level))}
			if a.Host, err = os.Hostname(); err != nil {
				a.Host = "a machine without a name"
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			o := agentOptions{dir: dir, join: join, server: server, slots: slots}
			if o.home, err = s.homeHere(dir); err != nil {
				return err
			}
			return runAgent(ctx, &a, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&join, "join", "", "`FILE` created with berth agent join; - reads standard input")
	f.StringVar(&dir, "dir", "", "the agent's folder (default HOME/agent)")
	f.StringVar(&server, "server", "", "the server's address as seen from this machine, if it is not the one in the file")
	f.IntVar(&slots, "slots", max(2, runtime.NumCPU()), "how many jobs run at once")
	return cmd
}

type agentOptions struct {
	dir, join, server string
	home              string // of a server on this machine, whose secrets jobs are kept from
	slots             int
}

// homeHere is the home of the server on this machine, or "": the one that the agent's folder is in,
// or else the one that is configured.
func (s *session) homeHere(dir string) (string, error) {
	cfg, err := s.config()
	if err != nil {
		return "", err
	}
	for _, home := range []string{filepath.Dir(dir), cfg.Home} {
		if _, err := os.Stat(filepath.Join(home, "secret.key")); err == nil {
			return filepath.Abs(home)
		}
	}
	return "", nil
}

// identity reads who this agent is: what it joins with, and an id that stays as long as its folder
// does.
func (o agentOptions) identity(a *dialout.Agent) error {
	kept := filepath.Join(o.dir, joinKept)
	b, err := o.readJoin(kept)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &a.Join); err != nil || a.Join.Token == "" || a.Join.Compute == "" {
		return berth.Errorf(berth.Invalid, "this is not a file of `berth agent join`")
	}
	if o.join != "" {
		if err := o.leave(kept, a.Join); err != nil {
			return err
		}
		if err := writePrivate(kept, b); err != nil {
			return err
		}
	}
	if o.server != "" {
		a.Join.Server = o.server
	}
	path := filepath.Join(o.dir, "id")
	id, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		id = []byte(berth.NewGUID())
		err = writePrivate(path, id)
	}
	a.ID = string(id)
	return err
}

// leave lets go of the server that the agent had joined before, if it joins another: the terms of
// one mean nothing to the other.
func (o agentOptions) leave(kept string, next dialout.Join) error {
	b, err := os.ReadFile(kept)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var last dialout.Join
	if err == nil {
		err = json.Unmarshal(b, &last)
	}
	if err == nil && last.Server == next.Server && last.Path() == next.Path() {
		return nil
	}
	return local.ForgetTerms(filepath.Join(o.dir, "host"))
}

func (o agentOptions) readJoin(kept string) ([]byte, error) {
	switch o.join {
	case "-":
		return io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
	case "":
		b, err := os.ReadFile(kept)
		if errors.Is(err, os.ErrNotExist) {
			return nil, berth.Errorf(berth.Invalid, "this agent has not joined yet; give the file of `berth agent join NAME` with --join")
		}
		return b, err
	}
	return os.ReadFile(o.join)
}

// writePrivate writes a file that only its owner may read, whole or not at all.
func writePrivate(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".berth-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
