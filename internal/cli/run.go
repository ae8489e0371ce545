package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
)

// bareRun is `berth run`: a job without a file.
type bareRun struct {
	s           *session
	on          string
	name        string
	display     string
	experiment  string
	tags        []string
	env         []string
	environment string
	inputs      []string
	outputs     []string
	code        string
	noCode      bool
	noWait      bool
	timeout     time.Duration
	yes         bool
	secrets     bool
	dryRun      bool
	interactive bool
	cpus        string
	memory      string
	gpus        string
	command     []string
}

func runCommand(s *session) *cobra.Command {
	r := &bareRun{s: s}
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG…]",
		Short: "Run a command as a job, with this folder's code, and stream its output",
		Long: "Uploads this folder, runs the command as a job, streams its output and exits with its exit code.\n\n" +
			"Files excluded by .amlignore (or .gitignore), .git, .venv, caches and what looks like a secret are not uploaded. One argument with spaces is a shell\n" +
			"command; several arguments form one command. ${{inputs.NAME}} and ${{outputs.NAME}} in it become values and paths.\n\n" +
			"  berth run -- python train.py --lr 0.1\n" +
			"  berth run --environment requirements.txt -- python train.py\n" +
			"  berth run --input data=./data --output model=./model -- 'python train.py ${{inputs.data}} ${{outputs.model}}'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("give a command: `berth run -- python train.py`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.command = args
			err := r.run(cmd.Context())
			if r.dryRun {
				err = planFailed(err)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&r.on, "on", "", "compute to run on (default: this machine)")
	f.StringVarP(&r.name, "name", "n", "", "name of the job (default: generated)")
	f.StringVar(&r.display, "display-name", "", "display name")
	f.StringVar(&r.experiment, "experiment", "", "experiment it belongs to (default: the name of this folder)")
	f.StringArrayVar(&r.tags, "tag", nil, "tag NAME=VALUE; may be repeated")
	f.StringArrayVarP(&r.env, "env-var", "e", nil, "environment variable NAME=VALUE, or NAME to pass yours; may be repeated")
	f.StringVar(&r.environment, "environment", "", "none, python, host, NAME[:VERSION], docker://IMAGE, the folder of a virtual environment, a requirements, conda or lock file, a pyproject.toml, or an environment's YAML file (default: what your shell would use)")
	f.StringArrayVar(&r.inputs, "input", nil, "NAME=PATH, URI or value; may be repeated")
	f.StringArrayVar(&r.outputs, "output", nil, "NAME=PATH: output folder, copied to PATH at the end, or kept there if PATH is azureml://datastores/…; may be repeated")
	f.StringVar(&r.code, "code", ".", "folder to upload")
	f.BoolVar(&r.noCode, "no-code", false, "upload nothing")
	f.BoolVar(&r.noWait, "no-wait", false, "print the job's name and return")
	f.Var(spanFlag{&r.timeout}, "timeout", "stop the job after this time, for example 90m or a number of seconds")
	alias(cmd, map[string]string{"gpus": "gpu", "experiment-name": "experiment"})
	f.StringVar(&r.gpus, "gpu", "", "GPUs it needs; 0 hides those that are there")
	f.StringVar(&r.cpus, "cpus", "", "CPUs it may use, for example 2 or 0.5")
	f.StringVar(&r.memory, "memory", "", "memory it may use, for example 512m or 4g")
	f.BoolVarP(&r.interactive, "interactive", "i", false, "give it this terminal, or what is piped in, as standard input; it ends when you leave")
	f.BoolVar(&r.dryRun, "dry-run", false, "upload and submit nothing; show the plan, as berth plan does")
	f.BoolVarP(&r.yes, "yes", "y", false, "upload a large folder without asking")
	f.BoolVar(&r.secrets, "secrets", false, "upload files that look like secrets too, such as .env and *.pem")
	f.StringVarP(&s.format.name, "format", "o", "", "output format of --dry-run, for example json")
	return cmd
}

func (r *bareRun) run(parent context.Context) error {
	ctx, stop := interruptible(parent)
	defer stop()
	if r.name == "" {
		r.name = newName()
	} else if err := berth.CheckName("job", r.name); err != nil {
		return err
	}
	if r.interactive && r.noWait {
		return usagef("-i and --no-wait exclude each other: an interactive job ends when you leave")
	}
	if err := r.checkProgram(); err != nil {
		return err
	}
	outputs, err := r.outputPaths()
	if err != nil {
		return err
	}
	c, err := r.s.open(ctx)
	if err != nil {
		return err
	}
	body, err := r.body(ctx, c, outputs)
	if err != nil {
		if interrupted(ctx, err) {
			return exitError(exitInterrupted)
		}
		return err
	}
	if r.dryRun {
		return r.s.planBody(ctx, c, r.name, body)
	}
	_, rev, err := c.Submit(ctx, r.name, body)
	if interrupted(ctx, err) {
		r.s.say("stopped while %s was being submitted; `berth job show -n %s` tells whether it runs", r.name, r.name)
		return exitError(exitInterrupted)
	}
	if err != nil {
		return err
	}
	if r.noWait {
		r.s.out.WriteString(r.name + "\n") //nolint:errcheck // the job was submitted all the same
		r.s.nextSteps(r.name)
		r.s.fetchLater(r.name, outputs)
		return nil
	}
	r.s.say("submitted %s", r.s.paint(r.s.err, bold, r.name))
	if r.interactive {
		return r.s.converse(parent, c, r.name, rev, outputs)
	}
	r.s.nextSteps(r.name)
	return r.s.followTo(ctx, c, r.name, rev, outputs)
}

// followTo shows a job to its end, fetches outputs to where they are wanted, and ends with the
// job's exit code.
func (s *session) followTo(ctx context.Context, c *client.Client, name string, rev berth.Rev, outputs map[string]string) error {
	w := &watcher{s: s, c: c, job: name, rev: rev}
	j, err := w.watch(ctx)
	if err != nil {
		defer s.fetchLater(name, outputs)
	}
	if interrupted(ctx, err) {
		return s.detached(name)
	}
	if err != nil {
		s.hint("the job goes on; `berth logs -f %s` comes back to it", name)
		return err
	}
	if w.az != nil {
		return w.az.end(j, w.open)
	}
	return s.conclude(ctx, c, j, outputs)
}

// conclude says how a job ended, fetches its outputs and ends with its exit code.
func (s *session) conclude(ctx context.Context, c *client.Client, j *client.Job, outputs map[string]string) error {
	s.summary(j)
	s.hintLeft(j)
	if err := s.fetchOutputs(ctx, c, j, outputs); err != nil {
		return err
	}
	if code := jobExit(j.Status(), j.State().Exit); code != 0 {
		return exitError(code)
	}
	return nil
}

// checkProgram refuses a command that begins with a script of the folder, where a shell looks for
// programs in PATH only.
func (r *bareRun) checkProgram() error {
	word, _, _ := strings.Cut(commandLine(r.command), " ")
	by := map[string]string{".py": "python", ".sh": "bash", ".R": "Rscript", ".jl": "julia"}[filepath.Ext(word)]
	if ext := filepath.Ext(word); ext == ".yml" || ext == ".yaml" {
		if info, err := os.Stat(word); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 == 0 {
			return usagef("%s is not a program; `berth job create -f %s --stream` runs a job file", word, word)
		}
	}
	if by == "" || strings.ContainsAny(word, "/'") || r.noCode {
		return nil
	}
	if info, err := os.Stat(filepath.Join(r.code, word)); err == nil && info.Mode().IsRegular() {
		return usagef("%s is a file of the folder, not a program: `berth run -- %s %s`", word, by, word)
	}
	return nil
}

// body is the job's document; what it refers to has been uploaded.
func (r *bareRun) body(ctx context.Context, c *client.Client, outputs map[string]string) (json.RawMessage, error) {
	props := map[string]any{"jobType": "Command", "command": commandLine(r.command)}
	extra, err := r.needs()
	if err != nil {
		return nil, err
	}
	if r.on != "" {
		props["computeId"] = c.Workspace.ResourceID("computes", r.on)
	}
	if r.display != "" {
		props["displayName"] = r.display
	}
	if len(r.tags) > 0 {
		if props["tags"], err = r.tagMap(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(r.code)
	if err != nil {
		return nil, err
	}
	if r.experiment == "" {
		r.experiment = filepath.Base(dir)
	}
	props["experimentName"] = r.experiment
	if r.timeout > 0 {
		props["limits"] = map[string]any{"jobLimitsType": "Command", "timeout": isoDuration(r.timeout)}
	}
	vars, err := r.variables()
	if err != nil {
		return nil, err
	}
	props["environmentVariables"] = vars
	if r.interactive {
		r.s.describeTerminal(extra, vars)
	}
	if r.environment == berth.OnHost {
		extra[berth.EnvironmentProperty] = berth.OnHost
	} else if err := r.setEnvironment(ctx, c, props, vars); err != nil {
		return nil, err
	}
	if props["inputs"], err = r.inputDocs(ctx, c); err != nil {
		return nil, err
	}
	outs := map[string]any{}
	for name, path := range outputs {
		out := map[string]any{"jobOutputType": "uri_folder"}
		if strings.HasPrefix(path, datastoreScheme) {
			out["uri"], outputs[name] = path, ""
		}
		outs[name] = out
	}
	props["outputs"] = outs
	switch {
	case r.noCode:
	case r.dryRun:
		props["codeId"] = "local:" + dir
	default:
		if id, err := r.uploadCode(ctx, c, dir); err != nil {
			return nil, err
		} else if id != "" {
			props["codeId"] = id
		}
	}
	props["properties"] = extra
	return json.Marshal(map[string]any{"properties": props})
}

// setEnvironment adds the environment that was named, or that the user's shell would use.
func (r *bareRun) setEnvironment(ctx context.Context, c *client.Client, props map[string]any, vars map[string]string) error {
	find := r.chooseEnvironment
	if r.environment != "" {
		find = r.givenEnvironment
	}
	id, chosen, err := find(ctx, c)
	if err != nil {
		return err
	}
	for name, value := range chosen {
		if _, given := vars[name]; !given {
			vars[name] = value
		}
	}
	if id != "" {
		props["environmentId"] = id
	}
	return nil
}

// needs are the properties that stand for --gpu, --cpus and --memory.
func (r *bareRun) needs() (map[string]string, error) {
	extra := map[string]string{}
	for _, f := range []struct{ flag, value, property string }{
		{"gpu", r.gpus, berth.GPUsProperty}, {"cpus", r.cpus, berth.CPUsProperty}, {"memory", r.memory, berth.MemoryProperty},
	} {
		if f.value == "" {
			continue
		}
		raw, err := json.Marshal(map[string]any{"properties": map[string]string{f.property: f.value}})
		if err != nil {
			return nil, err
		}
		if _, err := berth.NeedsOf(raw); err != nil {
			_, want, _ := strings.Cut(err.Error(), "; it must be ")
			return nil, usagef("--%s %s: give %s", f.flag, f.value, want)
		}
		extra[f.property] = f.value
	}
	return extra, nil
}

// tagMap is the --tag flags.
func (r *bareRun) tagMap() (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range r.tags {
		name, value, ok := strings.Cut(kv, "=")
		if name == "" || !ok {
			return nil, usagef("--tag %s: give NAME=VALUE", kv)
		}
		out[name] = value
	}
	return out, nil
}

// variables are the --env-var flags.
func (r *bareRun) variables() (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range r.env {
		name, value, ok := strings.Cut(kv, "=")
		if name == "" || strings.ContainsAny(name, " \t\x00") {
			return nil, usagef("--env-var %s: give NAME=VALUE", kv)
		}
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				return nil, usagef("--env-var %s: you have no variable %s; give NAME=VALUE", kv, name)
			}
		}
		out[name] = value
	}
	return out, nil
}

// outputPaths are the --output flags: where each output goes at the end, "" when it stays.
func (r *bareRun) outputPaths() (map[string]string, error) {
	out := map[string]string{}
	for _, o := range r.outputs {
		name, path, _ := strings.Cut(o, "=")
		if err := berth.CheckName("output", name); err != nil {
			return nil, usagef("--output %s: %v", o, err)
		}
		if _, ok := out[name]; ok {
			return nil, usagef("--output %s: the name %s is given twice", o, name)
		}
		if strings.Contains(path, "://") && !strings.HasPrefix(path, datastoreScheme) {
			return nil, usagef("--output %s: an output goes to a folder of this machine or to a datastore (%s…/paths/…)", o, datastoreScheme)
		}
		out[name] = homePath(path)
	}
	return out, nil
}

// datastoreScheme begins the path of an output that stays in a datastore.
const datastoreScheme = "azureml://datastores/"

// isoDuration is d as the API takes it.
func isoDuration(d time.Duration) string {
	return "PT" + strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "S"
}
