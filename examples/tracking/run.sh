#!/usr/bin/env bash
# Three jobs train with different parameters, log to the workspace's MLflow server and register their models; then the best one is found.
# Needs a Python with mlflow and scikit-learn: PYTHON=... ./run.sh
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}
berth() { command "${BERTH:-berth}" "$@"; }

for alpha in 0.0001 1 1000; do
	berth run --experiment digits -- "$python" train.py --alpha "$alpha"
done
berth runs --experiment digits --order-by 'metrics.accuracy DESC'
berth model list -n digits

eval "$(berth tracking-uri --export)"
"$python" best.py
