//go:build !windows

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berthml/berth/internal/devbox"
	"github.com/berthml/berth/internal/envs"
)

func (a *agent) home() string { return filepath.Join(a.dir, "home") }
func (a *agent) env() string  { return filepath.Join(a.dir, "env") }

// logFile opens one of the instance's logs, empty. A disk that is full is no reason not to start:
// then nothing is kept.
func (a *agent) logFile(name string) io.WriteCloser {
	f, err := os.OpenFile(filepath.Join(a.dir, "log", name+".log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		a.warn(fmt.Sprintf("log %s not written: %v", name, err))
		f, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return nopCloser{io.Discard}
		}
	}
	return f
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// hidden are variables of the task that the agent is; the user's processes are no job.
var hidden = []string{"AZUREML_RUN_", "AZUREML_ROOT_RUN_", "AZUREML_NODE_", "AZ_BATCHAI_", "AZUREML_WORKSPACE_NAME=", "NODE_RANK=", "PWD=", "HOME=", "PYTHONUNBUFFERED=", "OLDPWD=", "SHLVL="}

// environ is what every process on the instance starts with.
func (a *agent) environ() []string {
	var env []string
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
next:
	for _, v := range os.Environ() {
		for _, h := range hidden {
			if strings.HasPrefix(v, h) {
				continue next
			}
		}
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
			continue
		}
		env = append(env, v)
	}
	own := filepath.Join(a.home(), ".local", "bin") + ":" + filepath.Join(a.env(), "bin") + ":" + a.programs()
	env = append(env,
		"HOME="+a.home(), "VIRTUAL_ENV="+a.env(), "PATH="+own+":"+path, "BERTH_INSTANCE_PATH="+own,
		"SHELL="+shell(), "JUPYTER_RUNTIME_DIR="+filepath.Join(a.scratch, "jupyter"),
	)
	for k, v := range a.c.Vars {
		env = append(env, k+"="+v)
	}
	return env
}

// programs is the directory in which the user's processes find berth.
func (a *agent) programs() string { return filepath.Join(a.scratch, "bin") }

// linkProgram makes this program, as berth, one of those that the user's processes find.
func (a *agent) linkProgram() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.programs(), 0o700); err != nil {
		return err
	}
	return os.Symlink(self, filepath.Join(a.programs(), "berth"))
}

// nameWorkspace writes the file by which MLClient.from_config finds the workspace, unless the user
// has one.
func (a *agent) nameWorkspace() error {
	ws := map[string]string{
		"subscription_id": a.c.Vars["AZUREML_ARM_SUBSCRIPTION"], "resource_group": a.c.Vars["AZUREML_ARM_RESOURCEGROUP"],
		"workspace_name": a.c.Vars["AZUREML_ARM_WORKSPACE_NAME"],
	}
	if ws["workspace_name"] == "" {
		return nil
	}
	b, err := json.MarshalIndent(ws, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Join(a.home(), ".azureml")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return writeNew(filepath.Join(dir, "config.json"), append(b, '\n'))
}

// profile is for login shells, those of terminals among them: /etc/profile sets another PATH on
// some systems.
const profile = `# The programs of the instance come first also where /etc/profile sets another PATH.
PATH=${BERTH_INSTANCE_PATH:+$BERTH_INSTANCE_PATH:}$PATH
if [ -n "$BASH_VERSION" ] && [ -f ~/.bashrc ]; then
	. ~/.bashrc
fi
`

// writeProfile writes the file that login shells read, unless the user has one.
func (a *agent) writeProfile() error {
	return writeNew(filepath.Join(a.home(), ".profile"), []byte(profile))
}

// writeNew writes a file that does not exist yet.
func writeNew(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(b)
	return err
}

func shell() string {
	if p, err := exec.LookPath("bash"); err == nil {
		return p
	}
	return "/bin/sh"
}

// command is a process of the instance, in the home directory and a group of its own.
func (a *agent) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), name, args...) // it ends with its session, or with the instance
	cmd.Env, cmd.Dir = a.processes.env, a.home()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// environment makes the instance's Python environment, once.
func (a *agent) environment(ctx context.Context) error {
	if envs.Owned(a.env()) {
		return nil
	}
	a.say(devbox.PhaseEnvironment, "installing JupyterLab into the instance's environment")
	e := a.c.Environments
	dir := e.Dir
	if dir == "" {
		dir = filepath.Join(a.dir, "..", "..", "envs")
	}
	cache, err := envs.Open(dir, envs.Options{MaxBytes: e.Bytes, Log: a.log, DockerHost: e.Engine})
	if err != nil {
		return err
	}
	err = cache.Own(ctx, a.env(), a.c.Packages, filepath.Join(a.dir, "log", "environment.log"), func(s string) { a.say(devbox.PhaseEnvironment, "the instance's environment: "+s) })
	if err != nil {
		return &failure{"the instance's environment could not be created: " + err.Error(), a.tail("environment")}
	}
	return nil
}

// tail is the end of a log.
func (a *agent) tail(name string) string {
	b, err := os.ReadFile(filepath.Join(a.dir, "log", name+".log"))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	lines = lines[max(0, len(lines)-20):]
	text := string(bytes.Join(lines, []byte("\n")))
	if len(text) > 4096 {
		text = "…" + text[len(text)-4096:]
	}
	return strings.ToValidUTF8(text, "?")
}

// script runs one of the user's setup scripts to its end.
func (a *agent) script(ctx context.Context, phase string, s *devbox.Script) error {
	what := map[string]string{devbox.PhaseCreation: "the creation script", devbox.PhaseStartup: "the startup script"}[phase]
	a.say(phase, what+" runs")
	log := a.logFile(phase)
	defer log.Close()
	path, err := a.writeScript(phase, s.Data)
	if err != nil {
		return &failure{msg: what + " cannot be written: " + err.Error()}
	}
	line := shellQuote(path)
	if s.Args != "" {
		line += " " + s.Args // shell text, as Azure has it
	}
	cmd := a.command(shell(), "-c", line)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = time.Second
	if err := a.processes.start(cmd); err != nil {
		return &failure{msg: what + " could not be started: " + err.Error()}
	}
	ended := make(chan error, 1)
	go func() { ended <- a.processes.wait(cmd) }()
	limit := time.NewTimer(s.Timeout)
	defer limit.Stop()
	timeout := false
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case timeout:
				return &failure{fmt.Sprintf("%s did not finish within %s and was stopped", what, s.Timeout), a.tail(phase)}
			case errors.As(err, &exit):
				return &failure{fmt.Sprintf("%s failed: %s", what, exit.ProcessState), a.tail(phase)}
			case err != nil && !errors.Is(err, exec.ErrWaitDelay):
				return &failure{what + " failed: " + err.Error(), a.tail(phase)}
			}
			return nil
		case <-limit.C:
			timeout = true
			killGroup(cmd, syscall.SIGTERM)
			limit.Reset(5 * time.Second)
			defer killGroup(cmd, syscall.SIGKILL)
			go func() {
				t := time.NewTimer(4 * time.Second)
				defer t.Stop()
				<-t.C
				killGroup(cmd, syscall.SIGKILL)
			}()
		case <-ctx.Done():
			killGroup(cmd, syscall.SIGKILL)
			<-ended
			return ctx.Err()
		}
	}
}

// writeScript makes a file of a script. What has no first line that says what runs it is for the
// shell.
func (a *agent) writeScript(name string, data []byte) (string, error) {
	if !bytes.HasPrefix(data, []byte("#!")) {
		data = append([]byte("#!"+shell()+"\n"), data...)
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // written on Windows
	path := filepath.Join(runDir(a.dir), name+".sh")
	if os.WriteFile(path, data, 0o700) == nil {
		return path, nil
	}
	path = filepath.Join(a.scratch, name+".sh") // the instance's disk is full
	return path, os.WriteFile(path, data, 0o700)
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
