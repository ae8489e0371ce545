package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// showVerb is NOUN show.
func showVerb(s *session, n noun) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "show [NAME]", Short: "Show one " + n.word, Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.need(n, &t, args); err != nil {
				return err
			}
			_, d, err := s.read(cmd.Context(), n, &t)
			if err != nil {
				return err
			}
			return s.print(entity(n, d))
		},
	}
	t.flags(cmd, n)
	s.format.flags(cmd)
	return cmd
}

// need is target.need, with the default workspace for a workspace nobody named.
func (s *session) need(n noun, t *target, args []string) error {
	if err := s.format.check(); err != nil {
		return err
	}
	if n.word == "workspace" && t.name == "" && len(args) == 0 {
		return nil
	}
	return t.need(n, args)
}

func archiveVerb(s *session, n noun) *cobra.Command { return archiving(s, n, "archive", true) }
func restoreVerb(s *session, n noun) *cobra.Command { return archiving(s, n, "restore", false) }

// archiving is NOUN archive and NOUN restore. Without a version an asset is archived as a whole.
func archiving(s *session, n noun, word string, archived bool) *cobra.Command {
	var t target
	short := "Hide it from lists"
	if !archived {
		short = "Show it in lists again"
	}
	cmd := &cobra.Command{
		Use: word + " [NAME]", Short: short, Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			c, err := s.resolve(cmd.Context(), n, &t)
			if err != nil {
				return err
			}
			path := t.path(n)
			if n.versioned && t.version == "" && t.label == "" {
				path = []string{n.collection, t.name}
			}
			d, err := c.Get(cmd.Context(), path...)
			if err != nil {
				return err
			}
			if t.label != "" {
				ref, err := berth.ParseRef(d.ID(), n.collection)
				if err != nil {
					return err
				}
				path = []string{n.collection, t.name, "versions", ref.Version}
			}
			d.Properties()["isArchived"] = archived
			_, err = c.Put(cmd.Context(), d, path...)
			return err
		},
	}
	t.flags(cmd, n)
	return cmd
}

// deleteVerb is NOUN delete.
func deleteVerb(s *session, n noun) *cobra.Command {
	var t target
	var yes, noWait bool
	cmd := &cobra.Command{
		Use: "delete [NAME]", Short: "Delete a " + n.word, Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			c, err := s.resolve(cmd.Context(), n, &t)
			if err != nil {
				return err
			}
			if !yes {
				if err := s.confirm(fmt.Sprintf("delete %s %s?", n.word, t.name)); err != nil {
					return err
				}
			}
			return c.Delete(cmd.Context(), t.path(n)...)
		},
	}
	t.flags(cmd, n)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait until it is gone")
	return cmd
}

// confirm asks a person; a script has to say --yes.
func (s *session) confirm(question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usagef("%s nobody can be asked here; use --yes", question)
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		s.say("nothing was deleted")
		return exitError(exitFailed)
	}
	return nil
}

// cancelVerb is job cancel.
func cancelVerb(s *session, n noun) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "cancel [NAME]", Short: "Ask a job to end", Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			c, err := s.resolve(cmd.Context(), n, &t)
			if err != nil {
				return err
			}
			if err := c.Cancel(cmd.Context(), t.name); err != nil {
				return err
			}
			s.say("asked %s to end", t.name)
			return nil
		},
	}
	t.flags(cmd, n)
	return cmd
}

// streamVerb is job stream: the log so far and as it grows, and the job's exit code.
func streamVerb(s *session, n noun) *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "stream [NAME]", Short: "Stream a job's output and end with its exit code", Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			j, err := s.job(ctx, c, t.name)
			if err != nil {
				return err
			}
			err = s.followLog(ctx, c, j, client.LogOptions{}, true)
			if interrupted(ctx, err) {
				return s.detached(j.Name)
			}
			return err
		},
	}
	t.flags(cmd, n)
	return cmd
}

// downloadVerb is NOUN download: what a job left, or the files of an asset.
func downloadVerb(s *session, n noun) *cobra.Command {
	var t target
	var dir, output string
	var all bool
	cmd := &cobra.Command{
		Use: "download [NAME]", Short: "Copy its files here", Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.need(n, args); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			c, d, err := s.read(ctx, n, &t)
			if err != nil {
				return err
			}
			if n.word == "job" {
				return s.downloadJob(ctx, c, t.name, output, dir, all)
			}
			uri, _ := d.Properties()[n.word+"Uri"].(string)
			return s.fetch(ctx, c, t.name, uri, dir+"/"+t.name)
		},
	}
	t.flags(cmd, n)
	cmd.Flags().StringVarP(&dir, "download-path", "p", ".", "folder to copy to")
	if n.word == "job" {
		cmd.Flags().StringVar(&output, "output-name", "", "only this output")
		cmd.Flags().BoolVar(&all, "all", false, "every output, and logs and artifacts")
	}
	return cmd
}
