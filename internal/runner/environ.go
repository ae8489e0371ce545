package runner

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
	"github.com/berthml/berth/internal/envs"
)

// inherited are the variables of the runner's own environment that commands see: where programs,
// packages and certificates are, never what opens a door.
var inherited = map[string]bool{
	"PATH": true, "HOME": true, "LANG": true, "LANGUAGE": true, "TZ": true, "TMPDIR": true, "USER": true, "LOGNAME": true,
	"SHELL": true, "TERM": true, "LD_LIBRARY_PATH": true, "CUDA_HOME": true, "CUDA_PATH": true, "JAVA_HOME": true,
	"http_proxy": true, "https_proxy": true, "no_proxy": true, "all_proxy": true,
	"HTTP_PROXY": true, "HTTPS_PROXY": true, "NO_PROXY": true, "ALL_PROXY": true,
	"PIP_INDEX_URL": true, "PIP_EXTRA_INDEX_URL": true, "PIP_CERT": true, "PIP_TRUSTED_HOST": true, "PIP_CONFIG_FILE": true,
	"UV_INDEX_URL": true, "UV_DEFAULT_INDEX": true, "UV_EXTRA_INDEX_URL": true, "UV_INDEX": true, "UV_CONFIG_FILE": true,
	"SSL_CERT_FILE": true, "SSL_CERT_DIR": true, "REQUESTS_CA_BUNDLE": true, "CURL_CA_BUNDLE": true,
	"NODE_EXTRA_CA_CERTS": true,
}

// BaseEnviron picks from a process's environment what commands may inherit.
func BaseEnviron(environ []string) []string {
	var base []string
	path := false
	for _, v := range environ {
		k, _, _ := strings.Cut(v, "=")
		if inherited[k] || strings.HasPrefix(k, "LC_") {
			base = append(base, v)
			path = path || k == "PATH"
		}
	}
	if !path {
		base = append(base, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return base
}

// environ is the environment of the task's command: what the machine lends, what the prepared
// environment needs, what jobs expect, and what the launch brings, of which a later one wins. In a
// container the image stands for the machine.
func (t *task) environ(e *envs.Env, more map[string]string) []string {
	l := t.l
	env := make([]string, 0, len(t.o.Base)+len(more)+2*len(t.paths)+24)
	if e == nil || e.Container == nil {
		env = append(env, t.o.Base...)
	}
	if e != nil {
		for k, v := range e.Vars {
			env = append(env, k+"="+v)
		}
	}
	env = append(env,
		"PWD="+t.workdir(),
		"PYTHONUNBUFFERED=1",
		"AZUREML_RUN_ID="+l.Job,
		"AZUREML_ROOT_RUN_ID="+l.Job,
		"AZUREML_RUN_ATTEMPT="+strconv.Itoa(l.Attempt),
		"AZUREML_ARM_SUBSCRIPTION="+l.Workspace.Subscription,
		"AZUREML_ARM_RESOURCEGROUP="+l.Workspace.Group,
		"AZUREML_ARM_WORKSPACE_NAME="+l.Workspace.Name,
		"AZUREML_WORKSPACE_NAME="+l.Workspace.Name,
		"AZUREML_NODE_COUNT=1",
		"AZ_BATCHAI_NUM_NODES=1",
		"NODE_RANK=0",
	)
	for name := range l.Inputs {
		if path, ok := t.paths[name]; ok {
			env = append(env, "AZURE_ML_INPUT_"+name+"="+path, "AZUREML_INPUT_"+name+"="+path, "AZUREML_DATAREFERENCE_"+name+"="+path)
		}
	}
	for name := range l.Outputs {
		path := t.values["outputs."+name]
		env = append(env, "AZURE_ML_OUTPUT_"+name+"="+path, "AZUREML_OUTPUT_"+name+"="+path, "AZUREML_DATAREFERENCE_"+name+"="+path)
	}
	env = append(env, t.tableVars()...)
	env = append(env, t.trackingVars(e)...)
	for k, v := range more {
		env = append(env, k+"="+v)
	}
	env = append(env, gpuVars(l, more, e != nil && e.Container != nil)...)
	env = once(append(env, "BERTH_TASK="+string(l.Task), environMark+"="+t.o.Dir))
	if e != nil && len(e.PathPrefix) > 0 {
		prefixPath(env, e.PathPrefix)
	}
	return env
}

// gpuVars are the variables that show a command its own GPUs and no others. They come after the
// launch's own: there GPUs are counted from zero on the node, and become those of its machine. In a
// container there are no others, and they are counted from zero.
func gpuVars(l *berth.Launch, more map[string]string, boxed bool) []string {
	if len(l.GPUs) == 0 {
		if l.NoGPU {
			return []string{cudaDevices + "=", "NVIDIA_VISIBLE_DEVICES=void"}
		}
		return nil
	}
	if boxed {
		return nil
	}
	var ids []string
	if asked, ok := more[cudaDevices]; ok {
		for f := range strings.SplitSeq(asked, ",") {
			i, err := strconv.Atoi(strings.TrimSpace(f))
			if err != nil || i < 0 || i >= len(l.GPUs) {
				break // CUDA too ends the list at the first that is not there
			}
			ids = append(ids, strconv.Itoa(l.GPUs[i]))
		}
	} else {
		for _, g := range l.GPUs {
			ids = append(ids, strconv.Itoa(g))
		}
	}
	return []string{cudaDevices + "=" + strings.Join(ids, ",")}
}

const cudaDevices = "CUDA_VISIBLE_DEVICES"

// environMark is in the environment of every process of a task, its escaped grandchildren's
// included. Its value is the task's directory, which tells tasks of the same name apart when a
// machine has several hosts.
const environMark = "BERTH_TASK_DIR"

// once leaves the last of the entries of each name, in the place of the first.
func once(env []string) []string {
	at := make(map[string]int, len(env))
	out := env[:0]
	for _, v := range env {
		k, _, ok := strings.Cut(v, "=")
		if !ok || k == "" || strings.IndexByte(v, 0) >= 0 {
			continue
		}
		if i, ok := at[k]; ok {
			out[i] = v
			continue
		}
		at[k] = len(out)
		out = append(out, v)
	}
	return out
}

// prefixPath puts directories before PATH.
func prefixPath(env, dirs []string) {
	for i, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			env[i] = "PATH=" + strings.Join(append(slices.Clone(dirs), path), ":")
			return
		}
	}
}
