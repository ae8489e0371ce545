// Package cli is the command line: one file per command, one table for the nouns and verbs of
// Azure's.
//
// Results go to standard output, everything said about them to standard error, and the exit code
// tells what happened: see exit.go. Nothing is read or computed before a command needs it, because
// people wait for this program a hundred times a day.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/driver/kubernetes"
)

// Main runs the command line args, the program's name first, and returns the exit code.
func Main(args []string) int {
	if len(args) > 1 && args[1] == "_devbox" { // what an instance's node runs; never typed
		return devboxMain(args[2:])
	}
	if len(args) > 1 && args[1] == "_host" { // what the local driver starts; never typed
		return hostMain(args[2:])
	}
	if len(args) > 1 && args[1] == "_ssh" { // what the SSH driver starts on a machine
		return remoteMain(args[2:])
	}
	if len(args) > 1 && args[1] == "_task" { // what queueing systems start
		return taskMain(args[2:])
	}
	if len(args) > 1 && args[1] == "_tunnel" { // what the Kubernetes driver starts in a pod
		return kubernetes.TunnelMain(args[2:])
	}
	if len(args) > 1 && args[1] == "_node" { // what providers of nodes start
		return nodeMain(args[2:])
	}
	if len(args) > 1 && args[1] == "_group" { // what runners start
		return groupMain(args[2:])
	}
	if len(args) > 1 && args[1] == "serve" {
		tune()
	} else {
		debug.SetGCPercent(400) // most commands end before a collection would pay
	}
	s := newSession()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := s.run(ctx, args)
	s.close()
	return s.report(err)
}

// run finds the command and runs it. The program called by the name az is az; `berth ml NOUN VERB`
// is `az ml NOUN VERB`.
func (s *session) run(ctx context.Context, args []string) error {
	var root *cobra.Command
	name := strings.TrimSuffix(strings.ToLower(filepath.Base(args[0])), ".exe")
	words := args[1:]
	if len(words) > 0 && (words[0] == "serve" || strings.HasPrefix(words[0], "_")) {
		name = "berth" // how the program starts itself, whatever it is called
	}
	switch {
	case name == "az" && (len(words) == 0 || words[0] != "ml"):
		s.azMode("az")
		root = azRoot(s)
		if err := azKnows(root, words); err != nil {
			return err
		}
	case name == "az", len(words) > 0 && words[0] == "ml":
		s.azMode(name + " ml")
		words = words[1:]
		root = mlRoot(s, name+" ml", words)
	default:
		root = newRoot(s, words)
	}
	words, err := s.ownArgs(root, words)
	if err != nil {
		return err
	}
	root.SetArgs(words)
	return root.ExecuteContext(ctx)
}

// azMode makes a session behave as az does: JSON by default, its exit codes, ERROR before what went
// wrong.
func (s *session) azMode(program string) {
	s.format.az, s.program = true, program
	s.format.kept = func() string {
		kept, err := s.settings()
		if err != nil {
			return "" // who needs the settings says what is wrong with them
		}
		return kept.get("core", "output")
	}
}

// self is how the program was called.
func (s *session) self() string {
	if s.program != "" {
		return s.program
	}
	return "berth"
}

// ownArgs brings what was typed into the form of our own flags, for the commands that follow az's
// grammar.
func (s *session) ownArgs(root *cobra.Command, words []string) ([]string, error) {
	if len(words) > 0 && strings.HasPrefix(words[0], cobra.ShellCompRequestCmd) {
		return words, nil
	}
	cmd, rest, err := root.Find(words)
	if err != nil || cmd == root || !s.format.az && cmd.Parent().GroupID != groupNoun && cmd.Flags().Lookup("set") == nil && cmd.Flags().Lookup("parameters") == nil {
		return words, nil //nolint:nilerr // the command itself says so, with its help
	}
	if s.format.az {
		if rest, err = filesIn(rest); err != nil {
			return nil, err
		}
	}
	if rest, err = azWords(cmd, rest, s.format.az); err != nil {
		return nil, err
	}
	path := strings.Fields(strings.TrimPrefix(cmd.CommandPath(), root.CommandPath()))
	return append(path, rest...), nil
}

// Groups of commands, in the order help shows them.
const (
	groupRun    = "run"
	groupServer = "server"
	groupNoun   = "noun"
)

// A command stands at the top of the tree, beside the nouns.
type command struct {
	group, name string
	make        func(*session) *cobra.Command
}

func commands() []command {
	return []command{
		{groupRun, "run", runCommand},
		{groupRun, "rerun", rerunCommand},
		{groupRun, "deploy", deployCommand},
		{groupRun, "endpoint", endpointCommand},
		{groupRun, "diff", diffCommand},
		{groupRun, "ps", psCommand},
		{groupRun, "show", ofJob("show", showVerb)},
		{groupRun, "cancel", ofJob("cancel", cancelVerb)},
		{groupRun, "stop", ofJob("stop", cancelVerb)},
		{groupRun, "download", ofJob("download", downloadVerb)},
		{groupRun, "rm", ofJob("rm", deleteVerb)},
		{groupRun, "logs", logsCommand},
		{groupRun, "explain", explainCommand},
		{groupRun, "plan", planCommand},
		{groupRun, "events", eventsCommand},
		{groupRun, "top", topCommand},
		{groupRun, "runs", runsCommand},
		{groupRun, "metrics", metricsCommand},
		{groupRun, "render", renderCommand},
		{groupRun, "advise", adviseCommand},
		{groupRun, "ssh", sshCommand},
		{groupRun, "open", openCommand},
		{groupServer, "up", upCommand},
		{groupServer, "down", downCommand},
		{groupServer, "status", statusCommand},
		{groupServer, "login", loginCommand},
		{groupServer, "logout", logoutCommand},
		{groupServer, "serve", serveCommand},
		{groupServer, "doctor", doctorCommand},
		{groupServer, "backup", backupCommand},
		{groupServer, "restore", restoreCommand},
		{groupServer, "azure-env", azureEnvCommand},
		{groupServer, "deployment", azDeployment},
		{groupServer, "tracking-uri", trackingURICommand},
		{groupServer, "tracking", trackingCommand},
		{groupServer, "token", tokenCommand},
		{groupServer, "user", userCommand},
		{groupServer, "setup", setupCommand},
		{groupServer, "trust", trustCommand},
		{groupServer, "agent", agentCommand},
		{groupServer, "storage", storageCommand},
		{groupServer, "quota", quotaCommand},
		{groupServer, "cost", costCommand},
		{groupServer, "budget", budgetCommand},
		{"", "version", versionCommand},
		{"", "man", manCommand},
	}
}

// ofJob makes a verb of jobs a command of its own: `berth cancel` is `berth job cancel`.
func ofJob(word string, v verb) func(*session) *cobra.Command {
	return func(s *session) *cobra.Command {
		cmd := v(s, jobNoun())
		cmd.Use = word + strings.TrimPrefix(cmd.Use, cmd.Name())
		cmd.ValidArgsFunction = s.completeJob
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			if len(args) > 0 || f.Changed("name") || f.Changed("all") || f.Changed("experiment-name") || f.Changed("everyone") {
				return run(cmd, args)
			}
			if word == "show" || word == "download" {
				return run(cmd, []string{selector(args)})
			}
			return usagef("say which job: `berth %s JOB`, where `last` is your newest; `berth ps` lists them", word)
		}
		return cmd
	}
}

// jobNoun is the noun of jobs.
func jobNoun() noun {
	all := nouns()
	return all[slices.IndexFunc(all, func(n noun) bool { return n.word == "job" })]
}

// newRoot makes the tree of commands. Those that the command line does not name are left out where
// it names one, and of the nouns only those that it names get their verbs: a hundred commands with
// their flags would take longer to make than most of them take to run.
func newRoot(s *session, words []string) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "berth",
		Short: "Run jobs on any machine, with Azure ML's own interface",
		Long: "Berth runs jobs on this machine and others, and speaks Azure ML's interface.\n\n" +
			"  berth run -- python train.py            run a command here, with this folder's code\n" +
			"  berth job create -f job.yml --stream    run an Azure ML job file\n" +
			"  berth ps                                list running and waiting jobs, and why they wait",
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version {
				_, err := io.WriteString(s.out, versionLine())
				return err
			}
			return group(cmd, args)
		},
	}
	// cobra's own flag takes a template, whose package keeps the methods of all types.
	root.Flags().BoolVar(&version, "version", false, "print the version")
	s.prepareRoot(root)
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Jobs:"}, &cobra.Group{ID: groupServer, Title: "The server:"},
		&cobra.Group{ID: groupNoun, Title: "Resources, as in `az ml`:"})
	completes := len(words) > 0 && strings.HasPrefix(words[0], cobra.ShellCompRequestCmd)
	add := func(c command) {
		cmd := c.make(s)
		cmd.GroupID = c.group
		root.AddCommand(cmd)
	}
	defer func() {
		if completes {
			s.completeTree(root)
		}
	}()
	all := commands()
	if i := slices.IndexFunc(all, func(c command) bool { return len(words) > 0 && c.name == words[0] }); i >= 0 {
		add(all[i])
		return root
	}
	if len(words) == 0 || !slices.ContainsFunc(nouns(), func(n noun) bool { return n.word == words[0] }) {
		for _, c := range all {
			add(c)
		}
	}
	addNouns(s, root, words)
	return root
}

// wholeRoot is the tree with every command and verb.
func wholeRoot(s *session) *cobra.Command {
	return newRoot(s, []string{cobra.ShellCompRequestCmd})
}

// mlRoot is the tree of `az ml`: the nouns alone.
func mlRoot(s *session, name string, words []string) *cobra.Command {
	root := &cobra.Command{
		Use: "ml", Short: "Machine learning, as in `az ml`", SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs, RunE: group,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name}, FParseErrWhitelist: anyFlags,
	}
	s.prepareRoot(root)
	root.AddGroup(&cobra.Group{ID: groupNoun, Title: "Resources:"})
	addNouns(s, root, words)
	return root
}

// prepareRoot gives a root what every root has.
func (s *session) prepareRoot(root *cobra.Command) {
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s%s\nsee `%s --help`", flagError(err), nearFlag(cmd, err), cmd.CommandPath())
	})
	s.flags(root)
	if s.format.az {
		if root.Annotations == nil {
			root.Annotations = map[string]string{}
		}
		root.Annotations[azMark] = "true"
	}
}

// azMark is what marks a tree of commands that has az's manners.
const azMark = "berth_az"

// flagError is what is wrong with a flag, in words for people.
func flagError(err error) string {
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &missing):
		if missing.GetSpecifiedShortnames() != "" {
			return "-" + missing.GetSpecifiedName() + " needs a value"
		}
		return "--" + missing.GetSpecifiedName() + " needs a value"
	case !errors.As(err, &value):
		return err.Error()
	}
	must := map[string]string{
		"int": "must be a whole number", "int64": "must be a whole number", "float64": "must be a number", "bool": "must be true or false",
	}[value.GetFlag().Value.Type()]
	var own usageError
	if errors.As(errors.Unwrap(value), &own) {
		must = own.msg
	}
	if must == "" {
		return err.Error()
	}
	return fmt.Sprintf("--%s %s: %s", value.GetFlag().Name, value.GetValue(), must)
}

func addNouns(s *session, root *cobra.Command, words []string) {
	for _, n := range nouns() {
		cmd := nounCommand(s, n, mentions(words, n.word))
		cmd.GroupID = groupNoun
		root.AddCommand(cmd)
	}
	for _, word := range sortedKeys(unserved) {
		if mentions(words, word) {
			root.AddCommand(unservedCommand(word, unserved[word]))
		}
	}
}

// mentions reports whether the command line may be about a noun; a shell that completes words may
// be about any.
func mentions(words []string, noun string) bool {
	for _, w := range words {
		if w == noun || strings.HasPrefix(w, cobra.ShellCompRequestCmd) {
			return true
		}
	}
	return false
}

// group is the RunE of a command that only has commands below it.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && cmd.Root().Annotations[azMark] != "" {
		var words []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
				words = append(words, c.Name())
			}
		}
		return usagef("a command is missing after %s: %s\nsee `%s --help`", cmd.CommandPath(), strings.Join(words, ", "), cmd.CommandPath())
	}
	if len(args) == 0 {
		return cmd.Help()
	}
	msg := fmt.Sprintf("%q is not a command of %s", args[0], cmd.CommandPath())
	if near := suggestions(cmd, args[0]); len(near) > 0 {
		msg += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s\nsee `%s --help`", msg, cmd.CommandPath())
}

// noArgs, oneArg and maxArgs are as cobra's, with the exit code of a wrong command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("`%s` takes no arguments: %q\nsee `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath())
}

func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("give one %s: `%s`", what, cmd.UseLine())
		}
		return nil
	}
}

func maxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usage(cmd, cobra.MaximumNArgs(n)(cmd, args)) }
}

func usage(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return usagef("%v\nsee `%s --help`", err, cmd.CommandPath())
}

// interruptible is ctx ended by Ctrl-C or a request to end; stop gives the signals back. The second
// one ends the program, whatever it is stuck in.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// interrupted reports whether err is the user's own Ctrl-C.
func interrupted(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || berth.CodeOf(err) == berth.Unavailable)
}
