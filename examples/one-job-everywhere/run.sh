#!/usr/bin/env bash
# Runs one job file on several computes, with the compute the only change, and compares what came out.
# usage: run.sh COMPUTE…        BERTH is the program (default: berth)
set -euo pipefail
cd "$(dirname "$0")"
berth=${BERTH:-berth}
[ $# -gt 0 ] || { echo "usage: run.sh COMPUTE…" >&2; exit 2; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for on in "$@"; do
	name=everywhere-$on-$(date +%s)
	"$berth" job create -f job.yml --on "$on" -n "$name" --stream >"$out/$on.log" || { cat "$out/$on.log" >&2; echo "the job failed on $on" >&2; exit 1; }
	"$berth" job download -n "$name" --output-name model -p "$out/$on" >/dev/null
	model=$(find "$out/$on" -name model.json)
	"$berth" metrics "$name" | grep -q accuracy || { echo "no metric arrived from $on" >&2; exit 1; }
	printf '%-12s %s  %s\n' "$on" "$(sha256sum <"$model" | cut -c1-16)" "$(grep -h accuracy "$out/$on.log" | tail -n 1)"
	sha256sum <"$model" >>"$out/hashes"
done
[ "$(sort -u "$out/hashes" | wc -l)" = 1 ] || { echo "the models differ" >&2; exit 1; }
echo "the same model everywhere"
