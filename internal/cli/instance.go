package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// instanceVerbs are the verbs of compute that are about instances.
func instanceVerbs() []verb {
	return []verb{startVerb, stopVerb, restartVerb, resizeVerb, connectSSHVerb, openVerb, instanceLogsVerb}
}

func startVerb(s *session, n noun) *cobra.Command {
	return operation(s, n, "start", "Start a compute instance")
}

func stopVerb(s *session, n noun) *cobra.Command {
	return operation(s, n, "stop", "Stop a compute instance; its files are kept, jobs on it are canceled")
}

func restartVerb(s *session, n noun) *cobra.Command {
	return operation(s, n, "restart", "Restart a compute instance")
}

// operation is a verb that changes what an instance does, and waits until it does.
func operation(s *session, n noun, verb, short string) *cobra.Command {
	var t target
	var noWait bool
	cmd := &cobra.Command{
		Use: verb + " [NAME]", Short: short, Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			return s.operate(cmd.Context(), t.name, verb, nil, noWait)
		},
	}
	t.flags(cmd, n)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is done")
	s.format.flags(cmd) // az's, although there is nothing to print
	return cmd
}

func resizeVerb(s *session, n noun) *cobra.Command {
	var t target
	var size string
	var noWait bool
	cmd := &cobra.Command{
		Use: "resize [NAME] --size SIZE", Short: "Resize a compute instance; a running one is restarted", Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			if size == "" {
				return usagef("give the new size with --size; `berth compute list-sizes --type ComputeInstance` lists them")
			}
			return s.operate(cmd.Context(), t.name, "resize", map[string]string{"targetVMSize": size}, noWait)
		},
	}
	t.flags(cmd, n)
	cmd.Flags().StringVar(&size, "size", "", "the new size")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is done")
	return cmd
}

// operate asks for an operation and follows it to its end.
func (s *session) operate(ctx context.Context, name, verb string, in any, noWait bool) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := c.Operate(ctx, name, verb, in); err != nil {
		return err
	}
	if noWait {
		s.say("asked %s to %s", name, verb)
		return nil
	}
	p := s.newProgress()
	defer p.stop()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		i, err := c.Instance(ctx, name)
		if err != nil {
			return err
		}
		switch i.Status {
		case "InProgress":
			p.set("%s is %s: %s", i.Name, i.State, i.Reason)
		case "Succeeded", "":
			p.stop()
			s.say("%s is %s", i.Name, s.paint(s.err, bold, i.State))
			return nil
		default:
			p.stop()
			return berth.Errorf(berth.Conflict, "%s of %s failed: %s", verb, i.Name, strings.Join(i.Errors, "\n"))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			s.say("%s goes on; `berth compute show %s` shows its state", verb, name)
			return exitError(exitInterrupted)
		case <-t.C:
		}
	}
}

// openVerb prints, or opens, the address of an application.
func openVerb(s *session, n noun) *cobra.Command {
	var t target
	var app string
	var browse, https bool
	cmd := &cobra.Command{
		Use: "open [NAME]", Short: "Open JupyterLab or another application of a compute instance", Args: maxArgs(1),
		Long: "Prints a URL that opens an application of the instance in a browser. It works once, within a minute; the browser stays\nsigned in to this instance for twelve hours. With --web, the URL is opened on this machine.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			u, err := c.OpenURL(cmd.Context(), t.name, app, https)
			if err != nil {
				return err
			}
			return s.browse(cmd.Context(), u, browse)
		},
	}
	t.flags(cmd, n)
	cmd.Flags().StringVar(&app, "app", "", "application (default: JupyterLab)")
	cmd.Flags().BoolVar(&browse, "web", false, "open it in this machine's browser")
	cmd.Flags().BoolVar(&https, "https", false, "print the HTTPS address also where the server is only yours; its authority must be trusted (`berth trust`)")
	return cmd
}

// instanceLogsVerb prints one of an instance's logs.
func instanceLogsVerb(s *session, n noun) *cobra.Command {
	var t target
	var name string
	cmd := &cobra.Command{
		Use: "logs [NAME]", Short: "Print a log of a compute instance: its setup scripts, Jupyter, its agent", Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			c, err := s.open(cmd.Context())
			if err != nil {
				return err
			}
			r, err := c.InstanceLog(cmd.Context(), t.name, name)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(s.out, r)
			return err
		},
	}
	t.flags(cmd, n)
	cmd.Flags().StringVar(&name, "log", "agent", "agent, environment, creation, startup or jupyter")
	return cmd
}

// describeInstance tells people about an instance what its document does not show at a glance.
func (s *session) describeInstance(d client.Document) {
	i, ok := client.AsInstance(d)
	if !ok {
		return
	}
	s.say("%s is %s: %s", i.Name, s.paint(s.err, bold, i.State), i.Reason)
	for _, e := range i.Errors {
		s.say("%s %s", s.paint(s.err, red, "error:"), strings.ReplaceAll(e, "\n", "\n  "))
	}
	for _, a := range i.Apps {
		s.hint("%-11s %s", a.Title, a.URL)
	}
	if len(i.Apps) > 0 {
		s.hint("`berth compute open %s` opens JupyterLab, `berth ssh %s` a shell", i.Name, i.Name)
	}
	if !i.AwakeAt.IsZero() {
		line := fmt.Sprintf("last kept awake %s ago: %s", time.Since(i.AwakeAt).Round(time.Second), i.Awake)
		if !i.StopsAt.IsZero() {
			line += fmt.Sprintf("; it stops at %s if nothing happens", i.StopsAt.Local().Format(time.DateTime))
		}
		s.hint("%s", line)
	}
	if i.DiskSize > 0 {
		s.hint("disk: %.1f of %.0f GB used", float64(i.DiskUsed)/1e9, float64(i.DiskSize)/1e9)
	}
	for _, w := range i.Warnings {
		s.warn("%s", w)
	}
}
