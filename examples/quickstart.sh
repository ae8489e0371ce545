#!/usr/bin/env bash
# The main job end to end, nothing configured: a server of its own in a temporary home, a real scikit-learn model.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
berth=${BERTH:-$(dirname "$here")/bin/berth}
work=$(mktemp -d)
export BERTH_HOME=${BERTH_HOME:-$work/home}
# Built environments are worth keeping between runs.
export BERTH_ENV_CACHE=${BERTH_ENV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berth/envs}
finish() {
	"$berth" down >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT
bold= plain=
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
job=digits-$(date +%Y%m%d-%H%M%S)
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

say "1. A command, no YAML:  berth run -- python3 train.py"
(cd "$here/hello" && "$berth" run -- python3 train.py)

say "2. A training job from an Azure ML YAML file:  berth job create -f job.yml --stream"
"$berth" job create -f "$here/sklearn/job.yml" --name "$job" --stream

say "3. What it used and where its time went:  berth explain $job"
"$berth" explain "$job"

say "4. The model:  berth job download -n $job"
"$berth" job download -n "$job" --output-name model -p "$work/model"
find "$work/model" -type f | while read -r file; do printf '   %s  %s bytes\n' "$(basename "$file")" "$(($(wc -c <"$file")))"; done
[ "$BERTH_HOME" != "$work/home" ] || say "The server and the model above were temporary: they are removed now."

say "What to try next"
cat <<TXT
   Your own script, unmodified:        cd your-project && $berth run -- python train.py
   Running and waiting jobs:           $berth ps
   Any azure-ai-ml script:             eval "\$($berth azure-env --export)"   (see examples/sdk)
   Everything else:                    docs/README.md
TXT
