#!/usr/bin/env bash
# Runs Microsoft's own live tests of azure-ai-ml, unchanged, against a fresh server, compares the YAML front end with the corpus,
# and writes what came of it to docs/compatibility.md.
#
#   BERTH_E2E_MIRROR=PATH scripts/compatibility.sh [FOLDER…]
#
# PATH is a git directory of Azure/azure-sdk-for-python. BERTH_ACCEPT is the folder with run_e2e.py (default ../shared/accept/azure-sdk),
# BERTH_CORPUS that of the corpus (default ../shared/corpus). Folders are those of the tests; without any, the ones this server serves.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
accept=${BERTH_ACCEPT:-$root/../shared/accept/azure-sdk}
corpus=${BERTH_CORPUS:-$root/../shared/corpus}
: "${BERTH_E2E_MIRROR:?set it to a git directory of Azure/azure-sdk-for-python}"
folders=("$@")
if [ ${#folders[@]} = 0 ]; then
	folders=(batch_services code_asset command_job component compute connection dataset datastore environment evaluator index model online_services workspace)
fi
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
# What the tests find in their workspace: clusters by these names, made as anybody makes them.
for name in cpu-cluster testCompute; do
	"$berth" compute create --type amlcompute -n $name --min-instances 0 --max-instances 2 -o none ||
		echo "no cluster $name: the tests that name it will fail" >&2
done
"$berth" azure-env -o json >"$work/env.json"

only=()
for f in "${folders[@]}"; do only+=(--only "$f/"); done
python3 "$accept/run_e2e.py" --mirror "$BERTH_E2E_MIRROR" --url-env "$work/env.json" --class A,B --timeout 600 --json "$work/e2e.json" "${only[@]}" >"$work/e2e.log" 2>&1 || true
tail -n 30 "$work/e2e.log" >&2
test -s "$work/e2e.json"
if [ -f "$corpus/rest/compare.py" ]; then
	python3 "$corpus/rest/compare.py" --berth "$berth" --root "$corpus" --golden "$corpus/rest" --stub "$corpus/rest/LOCAL.tsv" --kind-flag=--kind \
		--json "$work/corpus.json" >"$work/corpus.log" 2>&1 || true
	tail -n 4 "$work/corpus.log" >&2
fi
VERSION=$("$berth" version) python3 "$root/scripts/compatibility.py" "$work/e2e.json" "$work/corpus.json" "$accept" >"$work/page.md"
sed -n "/^## MLflow's own tests/,\$p" docs/compatibility.md >"$work/mlflow.md" # see compatibility-mlflow.sh
cp "$work/page.md" docs/compatibility.md
if [ -s "$work/mlflow.md" ]; then
	echo >>docs/compatibility.md
	cat "$work/mlflow.md" >>docs/compatibility.md
fi
echo "docs/compatibility.md is written" >&2
