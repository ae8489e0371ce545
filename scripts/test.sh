#!/usr/bin/env bash
# Every test that needs no special engine, with the race detector where a C compiler is there. The end-to-end suite installs the
# Python clients it drives into a cache outside the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
race=
if command -v "${CC:-cc}" >/dev/null; then race=-race; fi
export BERTH_BIN=$PWD/bin/berth
CGO_ENABLED=${race:+1} CGO_ENABLED=${CGO_ENABLED:-0} go test $race -timeout 20m ./...
