#!/usr/bin/env bash
# Runs MLflow's own tests, unchanged, against a fresh server, and writes what came of it to the last section of docs/compatibility.md.
#
#   BERTH_MLFLOW_MIRROR=PATH scripts/compatibility-mlflow.sh [ARGUMENT…]
#
# PATH is a git directory of mlflow/mlflow. BERTH_MLFLOW_ACCEPT is the folder with run_mlflow_suite.py (default ../shared/accept/mlflow),
# which gets the arguments. Each test has a new workspace.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
accept=${BERTH_MLFLOW_ACCEPT:-$root/../shared/accept/mlflow}
: "${BERTH_MLFLOW_MIRROR:?set it to a git directory of mlflow/mlflow}"
berth=${BERTH_BIN:-$root/bin/berth}
work=$(mktemp -d)
export BERTH_HOME=$work/home
unset BERTH_URL
cleanup() {
	"$berth" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap cleanup EXIT

"$berth" up
"$berth" workspace create -n suite -o none
uri=$("$berth" tracking-uri -w suite --query tracking_uri -o tsv)
token=$("$berth" tracking-uri -w suite --query token -o tsv)
python3 "$accept/run_mlflow_suite.py" --url "$uri" --token "$token" --ca "$BERTH_HOME/tls/ca.pem" --mirror "$BERTH_MLFLOW_MIRROR" --json "$work/mlflow.json" \
	--reset-cmd "'$berth' workspace delete -n suite --yes -o none && '$berth' workspace create -n suite -o none" "$@" || true
test -s "$work/mlflow.json"
VERSION=$("$berth" version) python3 "$root/scripts/compatibility-mlflow.py" "$work/mlflow.json" docs/compatibility.md
echo "docs/compatibility.md is written" >&2
