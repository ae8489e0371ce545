package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthml/berth"
	"github.com/berthml/berth/client"
	"github.com/berthml/berth/internal/spec"
)

// deployment is what `berth deploy` was asked for.
type deployment struct {
	what, name, deployment, on           string
	score, command, environment, authMod string
	instances, workers, port             int
	minimum, maximum                     int
	fewest                               bool // minimum was given
	idle, timeout                        time.Duration
	env                                  []string
	noWait                               bool
}

func deployCommand(s *session) *cobra.Command {
	var o deployment
	cmd := &cobra.Command{
		Use:   "deploy MODEL [--on COMPUTE]",
		Short: "Let a model answer requests, and show how to call it",
		Long: "Creates an online endpoint with one deployment, or changes the one that is there, waits until it answers and prints a command that calls it.\n\n" +
			"MODEL is one of\n" +
			"  a folder with an MLmodel file       an MLflow model, which needs nothing else\n" +
			"  score.py, or a folder that has one  a scoring script with init() and run()\n" +
			"  a file or folder with --score FILE  a model and the scoring script that loads it\n" +
			"  a folder with --command TEXT        a server of your own, which finds the folder in $AZUREML_MODEL_DIR and its port in $PORT\n" +
			"  NAME or NAME:VERSION                a registered model",
		Args: oneArg("model"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.format.check(); err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			o.what = args[0]
			c, err := s.open(ctx)
			if err != nil {
				return err
			}
			o.fewest = cmd.Flags().Changed("min")
			err = s.deploy(ctx, c, &o, o.fewest || cmd.Flags().Changed("max") || o.idle > 0)
			if interrupted(ctx, err) {
				return exitError(exitInterrupted)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.name, "name", "n", "", "name of the endpoint (default: that of the file or folder)")
	f.StringVar(&o.deployment, "deployment", "main", "name of the deployment")
	f.StringVar(&o.on, "on", "", "compute that the replicas run on (default: the server's machine)")
	f.StringVar(&o.score, "score", "", "scoring script for the model")
	f.StringVar(&o.command, "command", "", "command that serves the model on port $PORT")
	f.StringVarP(&o.environment, "environment", "e", "", "environment: azureml:NAME:VERSION, or a conda or requirements file")
	f.StringVar(&o.authMod, "auth-mode", "key", "key, aml_token or aad_token, for a new endpoint")
	f.IntVar(&o.instances, "instances", 1, "replicas")
	f.IntVar(&o.workers, "workers", 0, "requests that a replica answers at once")
	f.IntVar(&o.port, "port", 0, "port that the command listens on, if it cannot take $PORT")
	f.IntVar(&o.minimum, "min", 0, "fewest replicas; with --max or --idle their number follows the load")
	f.IntVar(&o.maximum, "max", 0, "most replicas")
	f.Var(spanFlag{&o.idle}, "idle", "stop all replicas after this time without requests; the next request starts one")
	f.Var(spanFlag{&o.timeout}, "timeout", "longest time for a request")
	f.StringArrayVar(&o.env, "env-var", nil, "NAME=VALUE for the process; may be repeated")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait until it answers")
	s.format.flags(cmd)
	return cmd
}

// deploy makes the endpoint and its deployment, and says how to call it.
func (s *session) deploy(ctx context.Context, c *client.Client, o *deployment, scaled bool) error {
	doc, err := s.deploymentDoc(ctx, c, o, scaled)
	if err != nil {
		return err
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	r, err := spec.LoadBytes(text, withTypes(spec.Options{Kind: "online-deployment", Workspace: c.Workspace, File: "berth deploy", Dir: ".", Links: followLinks()}))
	if err != nil {
		return err
	}
	endpoint, err := c.Get(ctx, "onlineEndpoints", o.name)
	if berth.CodeOf(err) == berth.NotFound {
		mode := map[string]string{"key": "Key", "aml_token": "AMLToken", "aad_token": "AADToken"}[o.authMod]
		if mode == "" {
			return usagef("--auth-mode %s: write key, aml_token or aad_token", o.authMod)
		}
		endpoint, err = c.Put(ctx, map[string]any{"location": "local", "properties": map[string]any{"authMode": mode}}, "onlineEndpoints", o.name)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.apply(ctx, c, r); err != nil {
		return err
	}
	if o.noWait {
		s.say("deployment %s of endpoint %s starts; `berth endpoint explain %s` shows how far it is", o.deployment, o.name, o.name)
	} else {
		n := endpointNouns(nil)[1]
		d, err := settled(ctx, c, []string{"onlineEndpoints", o.name, "deployments", o.deployment})
		if err == nil {
			err = s.broken(n, d)
		}
		if err != nil {
			return err
		}
		s.say("%s %s after %s", s.paint(s.err, bold, o.name+"/"+o.deployment), o.outcome(), span(time.Since(began)))
	}
	if shares, _ := endpoint.Properties()["traffic"].(map[string]any); len(shares) == 0 {
		if err := allTraffic(ctx, c, o.name, o.deployment); err != nil {
			return err
		}
	} else if shares[o.deployment] == nil {
		s.say("it has no traffic yet; `berth endpoint traffic %s %s=100` gives it all of it", o.name, o.deployment)
	}
	if endpoint, err = c.Get(ctx, "onlineEndpoints", o.name); err != nil {
		return err
	}
	if s.format.chosen() {
		return s.print(s.entity(endpointNouns(nil)[0], endpoint))
	}
	_, err = fmt.Fprintln(s.out, s.curl(ctx, c, endpoint, o))
	return err
}

// outcome is what a deployment does that was made.
func (o *deployment) outcome() string {
	switch {
	case o.instances > 0 || o.fewest && o.minimum > 0:
		return "answers"
	case o.fewest || o.idle > 0:
		return "has no replica yet, the first request starts one; it is ready"
	}
	return "is stopped (--instances 0) and answers nothing; it is as you asked"
}

// deploymentDoc is the deployment as its YAML would be.
func (s *session) deploymentDoc(ctx context.Context, c *client.Client, o *deployment, scaled bool) (map[string]any, error) {
	props := map[string]any{}
	doc := map[string]any{"name": o.deployment, "instance_type": "Standard_DS3_v2", "instance_count": o.instances, "properties": props}
	asked := o.name
	if err := o.sources(ctx, c, doc, props); err != nil {
		return nil, err
	}
	// A name that was given is never changed: it would be another endpoint.
	if o.name = endpointName(o.name); len(o.name) < 3 || asked != "" && asked != o.name {
		return nil, usagef("give the endpoint a name of 3 to 32 small letters, digits and '-' with --name, which begins with a letter")
	}
	doc["endpoint_name"] = o.name
	if o.on != "" {
		props["berth.compute"] = o.on
	}
	if scaled {
		props["berth.max"] = strconv.Itoa(max(o.maximum, o.minimum, o.instances, 1))
		if o.fewest {
			props["berth.min"] = strconv.Itoa(o.minimum)
		}
		if o.idle > 0 {
			props["berth.idle"] = o.idle.String()
		}
	}
	request := map[string]any{}
	if o.workers > 0 {
		request["max_concurrent_requests_per_instance"] = o.workers
	}
	if o.timeout > 0 {
		request["request_timeout_ms"] = o.timeout.Milliseconds()
	}
	if len(request) > 0 {
		doc["request_settings"] = request
	}
	env := map[string]any{}
	for _, v := range o.env {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, usagef("--env-var %s: write NAME=VALUE", v)
		}
		env[name] = value
	}
	if len(env) > 0 {
		doc["environment_variables"] = env
	}
	return doc, o.environmentOf(ctx, c, doc)
}

// sources says what is deployed: a model, code, or both.
func (o *deployment) sources(ctx context.Context, c *client.Client, doc, props map[string]any) error {
	if o.command != "" {
		props["berth.command"] = o.command
		if o.port > 0 {
			props["berth.port"] = strconv.Itoa(o.port)
		}
	}
	path, err := filepath.Abs(o.what)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	given := o.name != ""
	if !given {
		o.name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	has := func(name string) bool { _, err := os.Stat(filepath.Join(path, name)); return err == nil }
	code := func(file string) error {
		file, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		if _, err := os.Stat(file); err != nil {
			return berth.Errorf(berth.Invalid, "there is no scoring script %s", file)
		}
		doc["code_configuration"] = map[string]any{"code": filepath.Dir(file), "scoring_script": filepath.Base(file)}
		return nil
	}
	switch {
	case err != nil && !strings.ContainsAny(o.what, `/\`):
		if !given { // without the version, whatever that has for a suffix
			o.name, _, _ = strings.Cut(strings.TrimPrefix(o.what, "azureml:"), ":")
		}
		return o.registered(ctx, c, doc, code)
	case err != nil:
		return berth.Errorf(berth.Invalid, "there is no %s: name a file, a folder or a registered model", o.what)
	case !st.IsDir() && strings.HasSuffix(path, ".py"):
		if !given && o.name == "score" {
			o.name = filepath.Base(filepath.Dir(path))
		}
		return code(path)
	case st.IsDir() && has("MLmodel") && o.command == "" && o.score == "":
		doc["model"] = map[string]any{"path": path, "type": "mlflow_model"}
		return nil
	case o.score != "":
		doc["model"] = map[string]any{"path": path, "type": "custom_model"}
		return code(o.score)
	case o.command != "":
		doc["model"] = map[string]any{"path": path, "type": "custom_model"}
		return nil
	case st.IsDir() && has("score.py"):
		return code(filepath.Join(path, "score.py"))
	case st.IsDir() && has("config.json"):
		return usagef("%s looks like a model of Hugging Face: say what serves it, for example --command 'python serve.py --model \"$AZUREML_MODEL_DIR\" --port $PORT'", o.what)
	}
	return usagef("%s has neither MLmodel nor score.py: name the scoring script with --score FILE, or the server with --command TEXT", o.what)
}

// registered deploys a model of the workspace.
func (o *deployment) registered(ctx context.Context, c *client.Client, doc map[string]any, code func(string) error) error {
	name, version, _ := strings.Cut(strings.TrimPrefix(o.what, "azureml:"), ":")
	if version == "" {
		latest, _, err := versionsOf(ctx, c, "models", name)
		if err != nil {
			return err
		}
		if version = latest; version == "" {
			return berth.Errorf(berth.NotFound, "there is neither a file %s nor a model of that name", o.what)
		}
	}
	d, err := c.Get(ctx, "models", name, "versions", version)
	if err != nil {
		return err
	}
	doc["model"] = "azureml:" + name + ":" + version
	kind, _ := d.Properties()["modelType"].(string)
	switch {
	case o.score != "":
		return code(o.score)
	case o.command == "" && !strings.EqualFold(kind, "mlflow_model"):
		return usagef("model %s:%s is of type %s: name the scoring script that loads it with --score FILE, or a server with --command TEXT", name, version, kind)
	}
	return nil
}

// environmentOf is the environment: the one named, or the packages listed beside the script.
func (o *deployment) environmentOf(ctx context.Context, c *client.Client, doc map[string]any) error {
	file := o.environment
	if strings.HasPrefix(file, "azureml:") {
		doc["environment"] = file
		return nil
	}
	if conf, ok := doc["code_configuration"].(map[string]any); ok && file == "" {
		dir, _ := conf["code"].(string)
		for _, name := range []string{"conda.yml", "conda.yaml", "environment.yml", "requirements.txt"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				file = filepath.Join(dir, name)
				break
			}
		}
	}
	if file == "" {
		return nil
	}
	b, err := readGiven(file, "--environment")
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, ".txt") {
		var pins []string
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				pins = append(pins, line)
			}
		}
		if b, err = json.Marshal(map[string]any{"dependencies": []any{"pip", map[string]any{"pip": pins}}}); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(b)
	name := "deploy-" + hex.EncodeToString(sum[:8])
	_, err = c.Put(ctx, map[string]any{"properties": map[string]any{"condaFile": string(b), "isAnonymous": true, "osType": "Linux"}}, "environments", name, "versions", "1")
	if err != nil && berth.CodeOf(err) != berth.Conflict {
		return err
	}
	doc["environment"] = "azureml:" + name + ":1"
	return nil
}

// endpointName is text as the name of an endpoint.
func endpointName(text string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, strings.TrimLeft(text, "0123456789")), "-")
	return strings.TrimRight(name[:min(len(name), 32)], "-")
}
