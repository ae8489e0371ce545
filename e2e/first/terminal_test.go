//go:build engines

package first_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berthml/berth/e2e/world"
)

// terminal is a shell on a real terminal of 120 columns, in tmux. Its prompt has the number of the
// command and the exit code of the one before: "(3:0)$ ".
type terminal struct {
	*newcomer
	tmux   []string
	number int
}

// sits gives the newcomer a terminal.
func (n *newcomer) sits(path string) *terminal {
	n.t.Helper()
	x := &terminal{newcomer: n, tmux: []string{needed(n.t, "tmux"), "-u", "-S", filepath.Join(n.t.TempDir(), "tmux"), "-f", "/dev/null"}, number: 1}
	cmd := exec.Command(x.tmux[0], append(x.tmux[1:], "start-server", ";", "set-option", "-g", "history-limit", "50000", ";",
		"new-session", "-d", "-x", "120", "-y", "50", "-c", n.dir, `exec env PS1='(\#:$?)$ ' bash --norc --noprofile`)...)
	cmd.Env = append(n.env, "PATH="+path, "NO_COLOR=", "LC_ALL=C.UTF-8")
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%v\n%s", err, out)
	}
	n.t.Cleanup(func() { x.command("kill-server") })
	x.waits(`^\(1:0\)\$ `)
	return x
}

func (x *terminal) command(args ...string) string {
	x.t.Helper()
	out, err := exec.Command(x.tmux[0], append(x.tmux[1:], args...)...).Output()
	if err != nil {
		x.t.Errorf("tmux %q: %v", args, err)
	}
	return string(out)
}

// press presses a key by tmux's name for it.
func (x *terminal) press(key string) {
	x.t.Helper()
	x.command("send-keys", key)
}

// enters types a line, and does not wait.
func (x *terminal) enters(line string) {
	x.t.Helper()
	x.command("send-keys", "-l", "--", line)
	x.press("Enter")
}

// shown is what is on the screen, and above it, since the last prompt.
func (x *terminal) shown() string {
	x.t.Helper()
	text := x.command("capture-pane", "-p", "-J", "-S", "-")
	if i := strings.LastIndex(text, fmt.Sprintf("(%d:", x.number)); i >= 0 {
		text = text[i:]
	}
	return text
}

// waits returns what is shown as soon as it matches.
func (x *terminal) waits(pattern string) string {
	x.t.Helper()
	want := regexp.MustCompile(pattern)
	for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text := x.shown()
		if want.MatchString(text) {
			return text
		}
		if time.Now().After(limit) {
			x.t.Fatalf("%s is not shown:\n%s", pattern, text)
		}
	}
}

// ends waits for the next prompt, and returns what was shown before it and the exit code.
func (x *terminal) ends() (shown, code string) {
	x.t.Helper()
	prompt := fmt.Sprintf(`(?m)^\(%d:(\d+)\)\$ `, x.number+1)
	text := x.waits(prompt)
	at := regexp.MustCompile(prompt).FindStringSubmatchIndex(text)
	x.number++
	x.says("%s", text[:at[0]])
	return text[:at[0]], text[at[2]:at[3]]
}

// does types a command, waits for its end, and looks for what it must show.
func (x *terminal) does(line, code string, patterns ...string) {
	x.t.Helper()
	x.enters(line)
	shown, got := x.ends()
	if got != code {
		x.t.Fatalf("%s: exit code %s, want %s", line, got, code)
	}
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(shown) {
			x.t.Errorf("%s does not show %s", line, p)
		}
	}
}

const project = `import argparse, os
p = argparse.ArgumentParser()
p.add_argument("--data")
p.add_argument("--out")
a = p.parse_args()
for i in range(3):
    print("epoch", i, flush=True)
if a.data:
    print("read", sorted(os.listdir(a.data)))
if a.out:
    with open(os.path.join(a.out, "model.bin"), "w") as f:
        f.write("weights")
`

const jobFile = `$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
name: my_job
command: python train.py --out ${{outputs.model}}
code: .
outputs:
  model: {type: uri_folder}
environment: {image: python:3.12}
properties: {berth.environment: host}
compute: azureml:local
`

// readme is the commands of the README, in order, without those of the repository's Makefile,
// which are TestQuickstart and the suites themselves.
func readme(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i, block := range strings.Split(string(page), "```") {
		body, ok := strings.CutPrefix(block, "console\n")
		if i%2 == 0 || !ok {
			continue
		}
		for line := range strings.Lines(body) {
			line, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "  #")
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "make ") {
				all = append(all, line)
			}
		}
	}
	return all
}

// TestFirstHour types the commands of the README, as they stand there, on a terminal, and looks at
// what a person sees of each.
func TestFirstHour(t *testing.T) {
	needed(t, "tmux")
	python := filepath.Dir(world.Python(t, "azure-ai-ml==1.35.2", "azure-identity==1.27.0", "six==1.17.0"))
	bin := program(t)
	n := arrive(t, bin, home(t, bin), nil)
	example, err := filepath.Abs("../../examples/sdk")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(n.dir, "my-project")
	for name, text := range map[string]string{"train.py": project, "job.yml": jobFile, "data/numbers.csv": "1\n"} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x := n.sits("bin:" + filepath.Dir(bin) + ":" + python + ":" + os.Getenv("PATH"))
	x.does("export PATH=~/bin:$PATH; mkdir ~/bin; cp -r "+example+"/. my-project", "0")
	x.does("cp my-project/train.py .", "0")

	const done, spent = `^✓ \S+ completed in [\d.]+ m?s$`, `^  queued .* · total `
	sees := map[string][]string{
		"berth run -- python train.py": {`^starting a local server in `, `^submitted \S+$`, `^  berth logs -f `, `^epoch 2$`, done, spent},
		"cd my-project":                nil,
		"berth run --input data=./data --output model=./model -- 'python train.py --data ${{inputs.data}} --out ${{outputs.model}}'": {
			`^epoch 2$`, `^read \['numbers.csv'\]$`, done, spent, `^output model: 1 file, 7 B, in ./model$`,
		},
		"berth ps":           {`^NAME +STATUS +COMPUTE +TIME +CREATED +COMMAND OR REASON$`, `^\S+ +Completed +local .* python train.py --data`, `^0 running, 0 waiting, 2 ended$`},
		"berth logs -f last": {`^epoch 2$`, done},
		"berth explain last": {`^\S+ is Completed$`, `^  why +the command ended with exit code 0$`, `^  next +berth job download`, `^history$`},

		"berth job create -f job.yml --stream": {`^submitted my_job$`, `^epoch 2$`, done},
		"berth job list -o table":              {`^my_job +Completed`},
		"berth job download -n my_job --all":   {`model`},
		"berth compute create --type amlcompute -n cpu --size Standard_DS3_v2 --max-instances 4": {`^max_instances: 4$`, `^provisioning_state: Succeeded$`},
		"berth plan -f job.yml":                 {`^the job would run now$`},
		"berth run --on cpu -- python train.py": {`^epoch 2$`, done},
		"berth cost --by user,job":              {`USER +JOB`},

		"berth compute create --type computeinstance -n mybox --size Standard_DS3_v2": {`it stops by itself when it has not been used for 60 minutes`, `^state: Running$`},
		"berth compute open mybox": {`^http://berth-\w+\.localhost:\d+/berth/open/\S+$`},

		`eval "$(berth azure-env --export)"`:                        nil,
		"python submit.py":                                          {`^submitted \S+$`, `^status .*(?i:completed)$`},
		`ln -s "$(command -v berth)" ~/bin/az`:                      nil,
		"run_id=$(az ml job create -f job.yml --query name -o tsv)": nil,
		"az ml job show -n $run_id --query status -o tsv":           {`^(NotStarted|Preparing|Queued|Running|Finalizing|Completed)$`},
	}
	lines := readme(t)
	if len(lines) < 20 {
		t.Fatalf("the README has %d commands", len(lines))
	}
	for i, line := range lines {
		if line == "berth ssh mybox" {
			x.enters(line)
			x.waits(`(?m)[$#] *$`)
			x.enters(`berth run --no-code --environment host -- "echo sent from $BERTH_INSTANCE"`)
			x.waits(`(?m)^sent from mybox$(?s:.*)✓ \S+ completed in`)
			x.enters("exit")
			x.ends()
			x.does("berth compute delete -n mybox --yes", "0")
			continue
		}
		want, ok := sees[line]
		if !ok {
			t.Fatalf("this test does not know what a person sees of %q", line)
		}
		if i > 0 && strings.HasPrefix(line, "ln ") { // a name is good for one job
			x.does("sed -i '/^name:/d' job.yml", "0")
		}
		x.does(line, "0", want...)
	}
}

// TestTerminal: progress while somebody waits, Ctrl-C, and errors, as a person sees them.
func TestTerminal(t *testing.T) {
	needed(t, "tmux")
	bin := program(t)
	n := arrive(t, bin, home(t, bin), map[string]string{"fails.py": "import json\njson.loads('[1, 2')\n"})
	x := n.sits(filepath.Dir(bin) + ":" + os.Getenv("PATH"))

	x.enters("berth run --no-code --name long -- sleep 600")
	x.waits(`(?m)^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] running: the command runs  [\d.]+ `)
	x.press("C-c")
	shown, code := x.ends()
	if code != "130" {
		t.Errorf("exit code %s after Ctrl-C, want 130", code)
	}
	n.sees(shown, "stopped following long; the job keeps running", "berth logs -f long", "berth job cancel -n long")
	if strings.Contains(shown, "the command runs") {
		t.Error("the line of progress is left behind")
	}
	x.does("berth ps", "0", `^long +Running +local .* sleep 600$`, `^1 running, 0 waiting, 0 ended$`)
	x.does("berth run --no-code --name quick -- echo done", "0", `^done$`)
	x.does("berth ps", "0", `(?s)^long +Running.*\nquick +Completed`)
	x.does("berth cancel long", "0")
	x.does("berth ps", "0", `^long +Cancel`)

	x.does("berth rnu -- python3 fails.py", "2", `^berth: "rnu" is not a command of berth; did you mean run\?$`)
	x.does("berth run --on gpus -- python3 fails.py", "3", `^berth: there is no compute "gpus" in workspace default; .berth compute list. shows what there is$`)
	const last = `json\.decoder\.JSONDecodeError: Expecting ',' delimiter`
	x.does("berth run --name wrong -- python3 fails.py", "1", `^Traceback`, `^✗ wrong failed in .*: the command ended with exit code 1: `+last)
	x.does("berth ps", "0", `^wrong +Failed .*JSONDecodeError`)
	x.does("berth explain last", "0", `^wrong is Failed$`, `^  why .*`+last)
}
