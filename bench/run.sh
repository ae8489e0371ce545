#!/usr/bin/env bash
# Benchmarks against real peers, ratios in one run.
#   bench/run.sh [idle start list short cancel place cluster burst nodes watch log track track.push tree.code tree.data snapshot sweep.data batch big fuse fuse.datastore flat
#                 attached endpoints gateway flips score wake]
#                         all, or those named
#   bench/run.sh report   the table of docs/performance.md from the results
# BENCH_FORCE=1 runs on a busy machine, not scored; BENCH_QUICK=1 runs small and writes no results. BENCH_ROUNDS=5, BENCH_DIR=/var/tmp.
# BENCH_MLFLOW=PYTHON: a Python that has mlflow and psycopg2, for the peer of `track`.
# BENCH_K8S=DIR: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok, for the peers of `place` and `attached`.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bench/out
[ -n "${BERTH_BIN:-}" ] || make -s build # what is measured is what the tree says
CGO_ENABLED=0 go build -trimpath -o bench/out/bench ./bench/cmd
exec bench/out/bench "$@"
