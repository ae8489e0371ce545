#!/usr/bin/env bash
# Every test that needs no special engine. Packages run under the race detector where a C compiler is there; the command line's
# scripts and the end-to-end stories drive built programs and run without it. Python clients are installed into a cache
# outside the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
export BERTH_BIN=$PWD/bin/berth
programs='/(internal/cli|internal/fence|e2e/[a-z]+|internal/envs)$'
if command -v "${CC:-cc}" >/dev/null; then
	CGO_ENABLED=1 go test -race -timeout 15m $(go list ./... | grep -vE "$programs")
else
	echo "no C compiler: the race detector is not used" >&2
	go test -timeout 15m $(go list ./... | grep -vE "$programs")
fi
go test -timeout 30m $(go list ./... | grep -E "$programs") # the first time, clients are installed

# Some random input for everything that reads what people write. What is found stays in testdata/fuzz. It is counted and not timed:
# when its time is over the fuzzer of Go before 1.27 may say "context deadline exceeded" and fail (go.dev/issue/75804).
grep -rlE --include='*_test.go' '^func Fuzz' internal | xargs -n1 dirname | sort -u | while read -r dir; do
	grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | while read -r target; do
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-5000x}" -fuzzminimizetime 200x "./$dir"
	done
done
