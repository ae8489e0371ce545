#!/usr/bin/env bash
# Style and static checks. Tools are built once, by exact version, into a cache outside the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/berth-tools}
mkdir -p "$CACHE"
tool() { # NAME MODULE@VERSION
	local bin=$CACHE/$1@${2##*@}
	if [ ! -x "$bin" ]; then
		echo "building $1 ${2##*@}" >&2
		GOBIN=$CACHE/tmp.$$ CGO_ENABLED=0 go install "$2"
		mv "$CACHE/tmp.$$/$1" "$bin" && rmdir "$CACHE/tmp.$$"
	fi
	echo "$bin"
}
gofumpt=$(tool gofumpt mvdan.cc/gofumpt@v0.12.0)
bad=$("$gofumpt" -l $(git ls-files '*.go'))
if [ -n "$bad" ]; then
	echo "not formatted (run gofumpt -w):" >&2
	echo "$bad" >&2
	exit 1
fi
go vet ./...
# The server runs on Linux and macOS; Windows has the client, and drivers that say so.
GOOS=darwin go build ./...
GOOS=windows go build ./cmd/... ./client/... ./internal/driver/all
"$(tool golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.14.0)" run ./...
dead=$("$(tool deadcode golang.org/x/tools/cmd/deadcode@v0.52.0)" ./cmd/...)
if [ -n "$dead" ]; then
	echo "no program calls these; delete them, or move them to a _test.go file:" >&2
	echo "$dead" >&2
	exit 1
fi
vuln=$(tool govulncheck golang.org/x/vuln/cmd/govulncheck@v1.8.0)
if out=$("$vuln" ./... 2>&1); then
	echo "govulncheck: nothing found"
elif grep -qiE 'fetching vulnerabilities|dial tcp|no such host|connection refused|403|proxyconnect|timeout' <<<"$out"; then
	echo "govulncheck: NOT CHECKED, the vulnerability database cannot be reached from here" >&2
else
	echo "$out" >&2
	exit 1
fi
