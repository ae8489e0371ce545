#!/usr/bin/env bash
# Builds hyperkube (etcd + every Kubernetes component + kubectl in one binary), KWOK and Kueue into BINDIR.
# usage: build.sh BINDIR         FORCE=1 builds even when nothing changed
# A stamp of all inputs and the Go version decides: same stamp = nothing to do, so a CI that caches
# BINDIR pays for the build only when a version changes. GOCACHE, GOMODCACHE and -p (JOBS) are the caller's.
# go build itself fetches what it needs; `go mod download` would also ask for modules that nothing compiles.
set -euo pipefail
S=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
B=${1:?usage: build.sh BINDIR}; mkdir -p "$B"; B=$(cd "$B" && pwd)
export CGO_ENABLED=0 GOWORK=off GOFLAGS="-buildvcs=false -mod=readonly ${JOBS:+-p=$JOBS}"
stamp() { (cd "$S" && go version && cat "$@") | sha256sum | cut -d' ' -f1; }
want() { [ -n "${FORCE:-}" ] || [ ! -x "$B/$1" ] || [ "$(cat "$B/$1.stamp" 2>/dev/null)" != "$2" ]; }

st=$(stamp go.mod go.sum hyperkube.go.txt)
if want hyperkube "$st"; then
  # The module is put together outside the tree, where checks of the tree do not meet it.
  W=$(mktemp -d); trap 'rm -rf "$W"' EXIT
  mkdir -p "$W/cmd/hyperkube"; cp "$S/go.mod" "$S/go.sum" "$W/"; cp "$S/hyperkube.go.txt" "$W/cmd/hyperkube/main.go"
  cd "$W"
  KV=$(go list -m -f '{{.Version}}' k8s.io/kubernetes); minor=${KV#v1.}; minor=${minor%%.*}
  P=k8s.io/component-base/version     # without these the version is a placeholder
  "$S/retry.sh" go build -trimpath -ldflags "-s -w -X $P.gitVersion=$KV -X $P.gitMajor=1 -X $P.gitMinor=$minor -X $P.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=$KV" \
    -o "$B/hyperkube.new" ./cmd/hyperkube
  mv "$B/hyperkube.new" "$B/hyperkube"; echo "$st" >"$B/hyperkube.stamp"
fi
for n in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do ln -sfn hyperkube "$B/$n"; done

st=$(stamp kwok/go.mod kwok/go.sum)
if want kwok "$st"; then
  cd "$S/kwok"
  "$S/retry.sh" go build -trimpath -ldflags "-s -w" -o "$B/kwok.new" sigs.k8s.io/kwok/cmd/kwok
  mv "$B/kwok.new" "$B/kwok"; echo "$st" >"$B/kwok.stamp"
fi

st=$(stamp kueue/go.mod kueue/go.sum)
if want kueue "$st"; then
  cd "$S/kueue"
  "$S/retry.sh" go build -trimpath -ldflags "-s -w" -o "$B/kueue.new" sigs.k8s.io/kueue/cmd/kueue
  # What its installation applies is in the module too.
  D=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config/components
  rm -rf "$B/kueue.d"; mkdir "$B/kueue.d"
  cat "$D"/crd/bases/*.yaml >"$B/kueue.d/crds.yaml"; cat "$D"/webhook/manifests.yaml >"$B/kueue.d/webhooks.yaml"
  mv "$B/kueue.new" "$B/kueue"; echo "$st" >"$B/kueue.stamp"
fi
