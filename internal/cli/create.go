package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// creation is what a create command was asked for.
type creation struct {
	target
	file, saveAs   string
	environment    string // of a job
	on             string // compute, in place of the one in a job's file
	set            wordGroups
	stream, noWait bool
	dryRun         bool
	web            *bool
	secrets        *bool // of a connection
	allTraffic     bool  // of a deployment
	setDefault     bool  // of a batch deployment
}

// idleMinutes is how long an instance made by flags may be without use.
const idleMinutes = 60

// stopsItself gives an instance that is made by flags, of which none says when it stops, an idle
// time.
func stopsItself(n noun, sets []string) []string {
	instance := false
	for _, v := range sets {
		key, value, _ := strings.Cut(v, "=")
		instance = instance || key == "type" && strings.EqualFold(value, "computeinstance")
		if strings.HasPrefix(key, "idle_time_before_shutdown") || strings.HasPrefix(key, "schedules") {
			return nil
		}
	}
	if n.word != "compute" || !instance {
		return nil
	}
	return []string{fmt.Sprintf("idle_time_before_shutdown_minutes=%d", idleMinutes)}
}

// createVerb is NOUN create: from a YAML file, or from flags for what needs no file.
func createVerb(s *session, n noun) *cobra.Command {
	var o creation
	cmd := &cobra.Command{
		Use:   "create [-f FILE]",
		Short: "Create " + a(n.word),
		Args:  maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			defer func() {
				if o.dryRun {
					err = planFailed(err)
				}
			}()
			if err := s.format.check(); err != nil {
				return err
			}
			if err := noRegistries(o.registry); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			if o.name == "" && len(args) > 0 {
				o.name = args[0]
			}
			sets, err := setsOf(&o.set)
			if err != nil {
				return err
			}
			sets = append(sets, optionSets(cmd, n.options)...)
			if image, ok := strings.CutPrefix(o.environment, imageScheme); ok {
				return usagef("--environment %s: name the image in the file: `environment: {image: %q}`", o.environment, image)
			}
			if o.environment != "" {
				sets = append(sets, environmentSet(o.environment))
			}
			if o.on != "" {
				sets = append(sets, "compute=azureml:"+strings.TrimPrefix(o.on, "azureml:"))
			}
			if o.parent != "" {
				sets = append([]string{"endpoint_name=" + o.parent}, sets...)
			}
			var idle []string
			if o.file == "" && !s.format.az {
				idle = stopsItself(n, sets)
				sets = append(sets, idle...)
			}
			if place := s.place(cmd, n); place != "" {
				sets = append([]string{"location=" + place}, sets...)
			}
			if o.file == "" && (n.word == "job" || len(sets) == 0 && n.word != "workspace" && !(o.name != "" && strings.HasSuffix(n.word, "-endpoint"))) {
				return needFile(s, n, "create")
			}
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			r, err := s.document(c, n, o.file, sets, o.target)
			if err != nil {
				return err
			}
			if len(idle) > 0 {
				s.hint("it stops by itself when it has not been used for %d minutes; --set idle_time_before_shutdown_minutes=N changes that", idleMinutes)
			}
			if o.dryRun {
				return s.plan(ctx, c, r)
			}
			if n.word == "workspace" {
				if err := besideThere(ctx, c, r.Main()); err != nil {
					return err
				}
			}
			return s.create(ctx, c, n, r, o)
		},
	}
	f := cmd.Flags()
	o.flags(cmd, n)
	f.StringVarP(&o.file, "file", "f", "", "YAML file")
	setFlag(cmd, &o.set)
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait until it is ready")
	f.Bool("skip-validation", false, "accepted for compatibility with az; the server checks what it is sent")
	f.Lookup("skip-validation").Hidden = true
	switch n.word {
	case "compute":
		cmd.Long = "Creates a cluster, whose nodes come when jobs wait and go when they are idle, or an instance: one machine for one person.\n\n" +
			"  berth compute create -n cpu --type amlcompute --size Standard_DS3_v2 --max-instances 4\n" +
			"  berth compute create -n mybox --type computeinstance --size Standard_DS3_v2\n\n" +
			"Machines and clusters that are there already are attached: `berth compute attach --help`."
	case "job":
		f.StringVar(&o.on, "on", "", "compute to run on, in place of the file's")
		f.BoolVar(&o.dryRun, "dry-run", false, "only show the plan, as berth plan does")
		if !s.format.az {
			f.StringVar(&o.environment, "environment", "", "NAME[:VERSION] instead of the file's environment, or host: run on the node as it is where the image cannot be used")
		}
		f.BoolVarP(&o.stream, "stream", "s", false, "stream its output and exit with its exit code")
		f.StringVarP(&o.saveAs, "save-as", "a", "", "write the job as it was created to this YAML file")
		o.web = s.webFlag(cmd)
	case "connection":
		o.secrets = secretsFlag(cmd)
	case "online-deployment":
		f.BoolVar(&o.allTraffic, "all-traffic", false, "give it all the traffic of its endpoint")
	case "batch-deployment":
		f.BoolVar(&o.setDefault, "set-default", false, "make it the default deployment of its endpoint")
	case "workspace":
		ignored(cmd, "update-dependent-resources?/u")
	}
	optionFlags(cmd, n.options)
	s.format.flags(cmd)
	return cmd
}

// besideThere lets a workspace that exists keep its tags beside those that are given, and its
// place, when it is created again.
func besideThere(ctx context.Context, c *client.Client, res *spec.Resource) error {
	ws := c.Workspace
	ws.Name = res.Name
	there, err := c.In(ws).Get(ctx)
	if berth.CodeOf(err) == berth.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	var asked client.Document
	if err := json.Unmarshal(res.Body, &asked); err != nil {
		return err
	}
	delete(asked.Members, "location")
	tags, _ := there.Members["tags"].(map[string]any)
	if given, _ := asked.Members["tags"].(map[string]any); tags != nil {
		maps.Copy(tags, given)
		asked.Members["tags"] = tags
	}
	res.Body, err = json.Marshal(asked)
	return err
}

// environmentSet is the --set that --environment of a job is short for.
func environmentSet(environment string) string {
	if environment == berth.OnHost {
		return "properties." + berth.EnvironmentProperty + "=" + berth.OnHost
	}
	if !strings.HasPrefix(environment, "azureml:") {
		environment = "azureml:" + environment
	}
	if !strings.ContainsAny(strings.TrimPrefix(environment, "azureml:"), ":@/") {
		environment += "@latest"
	}
	return "environment=" + environment
}

// needFile says that a file is missing. az knows it from the flags of some commands, and of others
// when it reads what there is.
func needFile(s *session, n noun, verb string) error {
	say := latef
	switch n.word {
	case "job", "component", "datastore", "connection":
		say = usagef
	}
	text := fmt.Sprintf("give a file: `%s %s %s -f %s.yml`", s.self(), n.word, verb, n.word)
	if n.word == "compute" {
		text += "; or give --type, for example --type amlcompute"
	}
	return say("%s", text)
}

// place is where az would make a workspace that names no place: the default location.
func (s *session) place(cmd *cobra.Command, n noun) string {
	file, _ := cmd.Flags().GetString("file")
	if !s.format.az || n.word != "workspace" || file != "" {
		return ""
	}
	cfg, err := s.config()
	if err != nil {
		return ""
	}
	return s.location(cfg.Home)
}

// setFlag adds --set PATH=VALUE …, which overrides fields of a file.
func setFlag(cmd *cobra.Command, to *wordGroups) {
	cmd.Flags().Var(to, "set", "PATH=VALUE …: override fields of the file")
	takesMany(cmd.Flags().Lookup("set"), many)
}

// setsOf is what --set said, as spec takes it; paths that are none are refused with the place.
func setsOf(w *wordGroups) ([]string, error) {
	var out []string
	for _, group := range w.groups {
		for _, word := range group {
			if _, _, err := splitSet(word); err != nil {
				return nil, err
			}
			out = append(out, word)
		}
	}
	return out, nil
}

// document is what a file, or flags alone, become.
func (s *session) document(c *client.Client, n noun, file string, set []string, t target) (*spec.Result, error) {
	if file != "" {
		return s.load(c, n.yaml(), file, set, t.name, t.version)
	}
	if t.name != "" {
		set = append([]string{"name=" + t.name}, set...)
	}
	r, err := spec.LoadBytes([]byte("{}"), withTypes(spec.Options{
		Kind: n.yaml(), Set: set, Workspace: c.Workspace, Name: t.name, Version: t.version, File: commandLineFile, Links: followLinks(),
	}))
	return r, n.byFlags(err)
}

// commandLineFile stands for the file of a document that flags make.
const commandLineFile = "the command line"

// byFlags says what is wrong with a document that flags made in terms of these flags.
func (n noun) byFlags(err error) error {
	var wrong spec.Errors
	if !errors.As(err, &wrong) {
		return err
	}
	for i, e := range wrong {
		if e.File == commandLineFile {
			wrong[i].Line, wrong[i].Col = 0, 0 // there are no lines
		}
		for _, o := range n.options {
			flag, _, _ := strings.Cut(o.flag, "/")
			if e.File == commandLineFile && e.Field == o.field {
				wrong[i].File, wrong[i].Field = "", "--"+flag
			}
		}
	}
	return wrong
}

func (s *session) create(ctx context.Context, c *client.Client, n noun, r *spec.Result, o creation) error {
	d, rev, err := s.applyRev(ctx, c, r)
	if err == nil && (n.word == "compute" || n.child != "") && !o.noWait {
		path := []string{n.collection, d.Name()}
		if n.child != "" {
			path = []string{n.collection, r.Main().Parent, n.child, d.Name()}
		}
		if d, err = settled(ctx, c, path); err == nil {
			err = s.broken(n, d)
		}
	}
	if err != nil {
		if interrupted(ctx, err) {
			return exitError(exitInterrupted)
		}
		return err
	}
	if o.allTraffic {
		if err := allTraffic(ctx, c, r.Main().Parent, d.Name()); err != nil {
			return err
		}
	}
	if o.setDefault {
		if err := setDefault(ctx, c, r.Main().Parent, d.Name()); err != nil {
			return err
		}
	}
	if n.word == "compute" && o.noWait && s.format.az {
		return nil // as az, which has nothing to show yet
	}
	if n.word != "job" {
		if d, err = withSecrets(ctx, c, d, o.secrets); err != nil {
			return err
		}
		return s.print(s.entity(n, d))
	}
	name := d.Name()
	if o.saveAs != "" {
		var b bytes.Buffer
		shown, err := plain(s.entity(n, d))
		if err != nil {
			return err
		}
		if err := printYAML(&b, shown, false); err != nil {
			return err
		}
		if err := os.WriteFile(o.saveAs, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	s.web(*o.web, name)
	if !o.stream {
		if !s.format.plainly() {
			return s.print(s.entity(n, d))
		}
		_, err := fmt.Fprintln(s.out, name)
		s.nextSteps(name)
		return err
	}
	if !s.format.az { // az's own head says it
		s.say("submitted %s", s.paint(s.err, bold, name))
		s.nextSteps(name)
	}
	if err := s.followTo(ctx, c, name, rev, nil); err != nil {
		return err
	}
	if s.format.plainly() {
		return nil
	}
	if d, err = c.Get(ctx, "jobs", name); err != nil {
		return err
	}
	return s.print(s.entity(n, d))
}

// validateVerb is NOUN validate: everything that can be checked without a server.
func validateVerb(s *session, n noun) *cobra.Command {
	var file string
	var set wordGroups
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check a YAML file without creating anything",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			if file == "" {
				return needFile(s, n, "validate")
			}
			sets, err := setsOf(&set)
			if err != nil {
				return err
			}
			r, err := spec.Load(file, withTypes(spec.Options{Kind: n.yaml(), Set: sets, Links: followLinks()}))
			if bad, ok := err.(spec.Errors); ok && s.format.az && bad[0].Field != "" {
				return s.print(verdict(bad)) // az's own code is 0: the result says it
			}
			if err != nil {
				return err
			}
			for _, w := range r.Warnings {
				s.warn("%v", w)
			}
			if !s.format.plainly() {
				return s.print(verdict(nil))
			}
			s.say("%s is valid", file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML file")
	setFlag(cmd, &set)
	s.format.flags(cmd)
	return cmd
}

// verdict is what a validation found, in az's form.
func verdict(bad spec.Errors) map[string]any {
	if len(bad) == 0 {
		return map[string]any{"result": "Succeeded"}
	}
	var all []any
	for _, e := range bad {
		where := e.File
		if e.Line > 0 {
			where += "#line " + strconv.Itoa(e.Line)
		}
		msg := e.Msg
		if e.Suggest != "" {
			msg += fmt.Sprintf(" (did you mean %q?)", e.Suggest)
		}
		all = append(all, map[string]any{"location": where, "message": msg, "path": e.Field, "value": nil})
	}
	return map[string]any{"errors": all, "result": "Failed"}
}
