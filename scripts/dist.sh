#!/usr/bin/env bash
# Builds the release files: binaries (server and CLI for Linux and macOS, the CLI for Windows), and what
# scripts/package makes of them: manual pages, Debian packages, container images, wheels, a Helm chart, a formula.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p dist
for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
	os=${target%/*} arch=${target#*/} ext=
	[ "$os" = windows ] && ext=.exe
	out=dist/berth-$os-$arch$ext
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags "$LDFLAGS" -o "$out" ./cmd/berth
	printf '%s\t%s bytes\n' "$out" "$(wc -c <"$out")"
done
rm -rf dist/man
"dist/berth-$(go env GOHOSTOS)-$(go env GOHOSTARCH)" man dist/man/man1
go run ./scripts/package -dist dist -version "$VERSION"
(cd dist && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | sort | xargs sha256sum >SHA256SUMS)
