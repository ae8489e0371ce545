#!/usr/bin/env bash
# A job on low-priority nodes loses its node in the middle, and goes on from its checkpoint on another.
set -euo pipefail
cd "$(dirname "$0")"
berth=${BERTH:-berth}
job=${1:-evicted}

"$berth" compute create -f cluster.yml -o none
"$berth" run --on spot --name "$job" --no-wait -- python3 train.py
until "$berth" logs "$job" | grep -q "attempt 1"; do sleep 0.2; done
sleep 2
"$berth" compute evict -n spot -o none
"$berth" logs -f "$job"
"$berth" explain "$job"
"$berth" compute delete -n spot --yes
