//go:build linux && engines

package conformance_test

import (
	"strings"
)

// feature is something that a job can ask for.
type feature struct {
	group, name string
	// job is the rest of the job's YAML; environment says that it names its own.
	job         string
	environment bool
	// drive does something once the job was submitted, and ok says whether what the job asked for
	// came true; nil is a job that completed and said yes.
	drive func(*cell)
	ok    func(*cell) bool
	// only are the targets where it means something; nil is all. Elsewhere why is shown.
	only []string
	why  string
}

// folder is the input of most features.
const folder = "inputs: {d: {type: uri_folder, path: ./data, mode: MODE}}\n"

func withMode(mode string) string { return strings.Replace(folder, "MODE", mode, 1) }

// written is an output in a mode, and a command that writes it.
func written(mode string) string {
	return "command: mkdir -p ${{outputs.o}}/deep && echo yes > ${{outputs.o}}/deep/file\noutputs: {o: {type: uri_folder, mode: " + mode + "}}\n"
}

func outputArrived(c *cell) bool { return c.status() == "Completed" && c.downloaded("file") == "yes\n" }

func failed(words string) func(*cell) bool {
	return func(c *cell) bool { return c.status() == "Failed" && strings.Contains(c.explained(), words) }
}

// features are the rows of the table.
func features() []feature {
	reads := "command: test \"$(cat ${{inputs.d}}/words)\" = words && "
	own := "echo x > ${{inputs.d}}/new && echo YES\n"
	table := func(mode string) string {
		return "command: test \"$(cat $(find ${{inputs.d}}/ -name words))\" = words && echo YES\ninputs: {d: {type: mltable, path: ./table, mode: " + mode + "}}\n"
	}
	return []feature{
		{group: "inputs", name: "values", job: "command: test \"${{inputs.n}} ${{inputs.s}} ${{inputs.b}}\" = \"3 a b True\" && echo YES\ninputs: {n: 3, s: a b, b: true}\n"},
		{group: "inputs", name: "`uri_folder`, `ro_mount`", job: reads + "echo YES\n" + withMode("ro_mount")},
		{group: "inputs", name: "`uri_folder`, `rw_mount`", job: reads + own + withMode("rw_mount")},
		{group: "inputs", name: "`uri_folder`, `download`", job: reads + own + withMode("download")},
		{group: "inputs", name: "`uri_folder`, `direct`", job: "command: case ${{inputs.d}} in azureml://*|https://*) echo YES;; esac\n" + withMode("direct")},
		{group: "inputs", name: "`uri_file`", job: "command: test \"$(cat ${{inputs.d}})\" = words && echo YES\ninputs: {d: {type: uri_file, path: ./data/words}}\n"},
		{group: "inputs", name: "`mltable`, `eval_mount`", job: table("eval_mount")},
		{group: "inputs", name: "`mltable`, `eval_download`", job: table("eval_download")},
		{group: "outputs", name: "`uri_folder`, `rw_mount`", job: written("rw_mount"), ok: outputArrived},
		{group: "outputs", name: "`uri_folder`, `upload`", job: written("upload"), ok: outputArrived},
		{group: "outputs", name: "`uri_folder`, `direct`", job: "command: case ${{outputs.o}} in azureml://*|https://*) echo YES;; esac\noutputs: {o: {type: uri_folder, mode: direct}}\n"},
		{group: "outputs", name: "`uri_file`", job: "command: echo yes > ${{outputs.o}}\noutputs: {o: {type: uri_file}}\n", ok: func(c *cell) bool { return c.status() == "Completed" && c.downloaded("o") == "yes\n" }},
		{group: "outputs", name: "files in `./outputs`", job: "command: mkdir -p outputs && echo yes > outputs/file\n", ok: outputArrived},
		{
			group: "outputs", name: "files of a job that is canceled", job: "command: trap 'echo yes > outputs/file; exit 1' TERM; mkdir -p outputs; echo READY; sleep 600 & wait\n", drive: (*cell).cancel,
			ok: func(c *cell) bool { return c.status() == "Canceled" && c.downloaded("file") == "yes\n" },
		},
		{group: "command", name: "`code`", job: "command: sh work.sh\ncode: ./code\n"},
		{group: "command", name: "`environment_variables`", job: "command: test \"$A\" = 'b c$d' && echo YES\nenvironment_variables: {A: 'b c$d'}\n"},
		{group: "command", name: "its exit code", job: "command: exit 7\n", ok: failed("exit code 7")},
		{group: "command", name: "tracking with MLflow", job: "command: test -n \"$MLFLOW_TRACKING_URI\" && test -n \"$MLFLOW_RUN_ID\" && test -n \"$MLFLOW_TRACKING_TOKEN\" && echo YES\n"},
		{group: "environment", name: "the machine's own (`berth.environment: host`)", job: "command: echo YES\n", only: hosts, why: "a pod always has an image"},
		{group: "environment", name: "an image", job: "command: echo YES\nenvironment: {image: \"localhost/busybox:1\"}\n", environment: true},
		{group: "environment", name: "a `conda_file` with pip packages", job: "command: python -c 'import six; print(\"YES\")'\nenvironment: {conda_file: conda.yml, image: \"localhost/busybox:1\"}\n", environment: true},
		{group: "environment", name: "an image built from a Dockerfile", job: "command: echo YES\nenvironment: {build: {path: ./context}}\n", environment: true},
		{group: "distribution", name: "`pytorch`, processes on one node", job: "command: test \"$WORLD_SIZE\" = 2 && test -n \"$MASTER_PORT\" && echo YES\ndistribution: {type: pytorch, process_count_per_instance: 2}\n"},
		{group: "distribution", name: "`mpi`, processes on one node", job: "command: test \"$OMPI_COMM_WORLD_SIZE\" = 2 && echo YES\ndistribution: {type: mpi, process_count_per_instance: 2}\n"},
		{group: "distribution", name: "`tensorflow`", job: "command: echo \"$TF_CONFIG\" | grep -q worker && echo YES\ndistribution: {type: tensorflow, worker_count: 1}\n"},
		{group: "distribution", name: "`resources.instance_count: 2`", job: "command: test \"$AZUREML_NODE_COUNT\" = 2 && sleep $((NODE_RANK * 8)) && echo YES\nresources: {instance_count: 2}\n"},
		{group: "limits", name: "`limits.timeout`", job: "command: sleep 600\nlimits: {timeout: 2}\n", ok: func(c *cell) bool { return c.status() != "Completed" && strings.Contains(c.explained(), "tim") }},
		{group: "limits", name: "cancel while it runs", job: "command: echo READY; sleep 600\n", drive: (*cell).cancel, ok: func(c *cell) bool { return c.status() == "Canceled" }},
		{group: "limits", name: "cancel at once", job: "command: sleep 600\n", drive: (*cell).cancelNow, ok: func(c *cell) bool { return c.status() == "Canceled" }},
		{group: "resources", name: "`instance_type`", job: "command: sleep 600\nresources: {instance_type: gpu}\n", drive: (*cell).waitsForGPU, ok: func(c *cell) bool { return strings.Contains(c.seen, "nvidia.com/gpu") }},
		{group: "resources", name: "`shm_size`", job: "command: test $(df -k /dev/shm | tail -n 1 | awk '{print $2}') = 65536 && echo YES\nresources: {shm_size: 64m}\n"},
		{group: "resources", name: "`docker_args`", job: "command: test \"$(hostname)\" = asked && echo YES\nresources: {docker_args: --hostname asked}\n"},
		{group: "resources", name: "`locations`", job: "command: echo ran\nresources: {locations: [westeurope]}\n", ok: never},
		{group: "resources", name: "`max_instance_count`", job: "command: echo ran\nresources: {max_instance_count: 4}\n", ok: never},
		{group: "settings", name: "`queue_settings.job_tier`", job: "command: echo ran\nqueue_settings: {job_tier: spot}\n", ok: never},
		{group: "settings", name: "`identity: aml_token`", job: "command: test -n \"$MLFLOW_TRACKING_TOKEN\" && echo YES\nidentity: {type: aml_token}\n"},
		{group: "settings", name: "`identity: user_identity`", job: "command: echo ran\nidentity: {type: user_identity}\n", ok: never},
		{group: "settings", name: "`services`, `ssh`", job: "command: echo READY; while [ ! -e go ]; do sleep 0.1; done; echo YES\nservices: {shell: {type: ssh}}\n", drive: (*cell).enter},
	}
}

// hosts are the targets whose jobs run on a machine as it is.
var hosts = []string{"local", "nodes", "machine", "laptop", "queue"}

// never is for what nothing comes true of: a target refuses it, or says that it has no effect.
func never(*cell) bool { return false }
