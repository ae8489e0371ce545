#!/usr/bin/env bash
# A batch endpoint that counts the words of a folder of files: create it, invoke it, get the result.
#
#   examples/batch/run.sh [FOLDER for the result]
set -euo pipefail
berth=${BERTH:-berth}
to=${1:-$(mktemp -d)}
cd "$(dirname "$0")"

data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
for i in 1 2 3 4 5; do
	printf 'Ship %d, "at sea". The tide comes in.' "$i" >"$data/log$i.txt"
done

"$berth" batch-endpoint create -f endpoint.yml -o none
"$berth" batch-deployment create -f deployment.yml --set-default -o none
job=$("$berth" batch-endpoint invoke -n word-count --input "$data" --query name -o tsv)
"$berth" job stream -n "$job"
"$berth" batch-endpoint list-jobs -n word-count -o table
"$berth" job download -n "$job" --output-name score -p "$to"
cat "$to/named-outputs/score/words.csv"
