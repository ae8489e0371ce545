#!/usr/bin/env bash
# A pipeline of five commands, three of them in a pipeline component: run it, look at its steps, get its result.
#
#   examples/pipeline/run.sh [FOLDER for the result]
set -euo pipefail
berth=${BERTH:-berth}
to=${1:-$(mktemp -d)}
cd "$(dirname "$0")"

name=line-$(date +%s)
"$berth" job create -f pipeline.yml -n "$name" --stream
"$berth" job list --parent-job-name "$name" -o table
"$berth" logs "${name}_train_choose"
"$berth" job download -n "$name" --output-name report -p "$to"
cat "$to/named-outputs/report/report.txt"
