#!/usr/bin/env bash
# The suites that need real engines. What is missing is installed when apt-get and root are there; a suite whose engine cannot
# be had fails, because BERTH_REQUIRE_ENGINES names it.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	need=()
	command -v dockerd >/dev/null || need+=(docker.io)
	command -v podman >/dev/null || need+=(podman)
	command -v runc >/dev/null || need+=(runc)
	[ -x /bin/busybox ] || need+=(busybox-static)
	command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || need+=(postgresql)
	[ -x /usr/sbin/sshd ] || need+=(openssh-server)
	command -v slurmctld >/dev/null || need+=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)
	command -v slurmrestd >/dev/null || need+=(slurmrestd slurm-wlm-jwt-plugin)
	command -v slurmdbd >/dev/null || need+=(slurmdbd slurm-wlm-mysql-plugin)
	command -v mariadbd >/dev/null || need+=(mariadb-server)
	command -v containerd >/dev/null || need+=(containerd)
	[ -x /usr/lib/cni/bridge ] || need+=(containernetworking-plugins)
	command -v curl >/dev/null || need+=(curl)
	command -v ip >/dev/null || need+=(iproute2)
	command -v Rscript >/dev/null || need+=(r-base-core)
	command -v tmux >/dev/null || need+=(tmux)
	command -v chromium >/dev/null || need+=(chromium)
	command -v mpicc >/dev/null || need+=(openmpi-bin libopenmpi-dev)
	/usr/bin/python3 -c "import sklearn" 2>/dev/null || need+=(python3-sklearn)
	[ -n "${BERTH_TORCH_PYTHON:-}" ] || /usr/bin/python3 -c 'import torch' 2>/dev/null || need+=(python3-torch)
	if [ ${#need[@]} -gt 0 ]; then
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}"
	fi
fi
export BERTH_BIN=$PWD/bin/berth
export BERTH_TORCH_PYTHON=${BERTH_TORCH_PYTHON:-/usr/bin/python3}
export BERTH_REQUIRE_ENGINES=${BERTH_REQUIRE_ENGINES:-docker,podman,postgres,mpi,torch,sshd,slurm,kubernetes,tmux,chromium}
# Tasks of Slurm and Kubernetes mostly wait for their engine, so that many tests run at a time.
suite() { go test -tags engines -timeout 20m -count=1 -parallel 8 "$@"; }
suite ./internal/envs/... ./e2e/container/... ./e2e/samples ./bench/peer ./internal/store
suite -run 'FirstHour|Terminal|Notebook' ./e2e/first # on a real terminal, and in a real browser
suite ./e2e/acme # Pebble is built from its module once
# Kubernetes, KWOK and Kueue are built from their modules once, outside the tree: minutes the first time.
./e2e/engines/k8s/build.sh "${BERTH_ENGINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berth-engines}/k8s"
suite ./internal/driver/slurm ./internal/driver/kubernetes
suite ./e2e/conformance
# versitygw and fake-gcs-server are built from their modules, and npm installs Azurite, once, outside the tree.
suite ./e2e/storage
# Of these only what an engine is needed for: make test has the rest.
suite -run 'Container|MPI|Torch|Application|Postgres|SSH|Slurm|Kubernetes' ./internal/runner ./internal/runner/group ./internal/driver/cluster ./e2e/attached ./e2e/cluster ./e2e/instance ./e2e/crash
