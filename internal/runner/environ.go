package runner

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth"
)

// inherited are the variables of the runner's own environment that commands see: where programs, packages and
// certificates are, never what opens a door.
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

// environ is the environment of the task's command. Later entries win over earlier ones of the same name, and what the
// launch brings wins over all but the mark.
func (t *task) environ() []string {
	l := t.l
	env := make([]string, 0, len(t.o.Base)+len(l.Env)+len(t.paths)+16)
	env = append(env, t.o.Base...)
	env = append(env,
		"PWD="+t.workdir(),
		"AZUREML_RUN_ID="+l.Job,
		"AZUREML_ROOT_RUN_ID="+l.Job,
		"AZUREML_ARM_SUBSCRIPTION="+l.Workspace.Subscription,
		"AZUREML_ARM_RESOURCEGROUP="+l.Workspace.Group,
		"AZUREML_ARM_WORKSPACE_NAME="+l.Workspace.Name,
		"AZUREML_WORKSPACE_NAME="+l.Workspace.Name,
		"AZUREML_RUN_ATTEMPT="+strconv.Itoa(l.Attempt),
		"AZ_BATCHAI_NUM_NODES=1",
		"AZUREML_NODE_COUNT=1",
		"NODE_RANK=0",
		"PYTHONUNBUFFERED=1",
	)
	if len(l.GPUs) > 0 {
		ids := make([]string, len(l.GPUs))
		for i, g := range l.GPUs {
			ids[i] = strconv.Itoa(g)
		}
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(ids, ","))
	}
	for name, path := range t.paths {
		env = append(env, "AZUREML_DATAREFERENCE_"+name+"="+path)
	}
	return env
}

// finish adds what the launch brings, and leaves each name once.
func finishEnviron(env []string, more map[string]string, id berth.TaskID) []string {
	for k, v := range more {
		env = append(env, k+"="+v)
	}
	env = append(env, environMark+"="+string(id))
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
	return slices.Clip(out)
}
