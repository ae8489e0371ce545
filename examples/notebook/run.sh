#!/usr/bin/env bash
# A compute instance with JupyterLab, and a notebook executed on it through the server's proxy.
# PYTHON needs the packages requests and websocket-client.
set -euo pipefail
cd "$(dirname "$0")"
berth=${BERTH:-berth} python=${PYTHON:-python3} out=${OUT:-$PWD/wave.out.ipynb}

"$berth" up
"$berth" compute create -f ci.yml -o none
"$berth" compute show notebook-box

BERTH=$berth "$python" execute.py notebook-box wave.ipynb "$out"

"$berth" ssh notebook-box -- head -3 wave.txt
"$berth" compute stop -n notebook-box
"$berth" compute delete -n notebook-box --yes
