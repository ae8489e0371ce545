#!/usr/bin/env bash
# Two jobs on a cluster of a GPU size, on a machine with one GPU: they never share it. A third, on a size without GPUs, sees none.
set -euo pipefail
cd "$(dirname "$0")"
berth=${BERTH:-berth}
size=${SIZE:-Standard_NC6s_v3}

if ! "$berth" compute create --type amlcompute -n gpus --size "$size" --max-instances 2 --idle-time-before-scale-down 1 -o none; then
	# The series needs an approval; on your own machine you are the administrator.
	id=$("$berth" quota request --size "$size" --vcpus 64 --reason "try the GPU" --query id -o tsv)
	"$berth" quota approve "$id" -o none
	"$berth" compute create --type amlcompute -n gpus --size "$size" --max-instances 2 --idle-time-before-scale-down 1 -o none
fi
"$berth" compute create --type amlcompute -n cpus --size Standard_DS3_v2 --max-instances 1 --idle-time-before-scale-down 1 -o none
for job in gpu-a gpu-b; do "$berth" run --on gpus --name $job --no-wait -- python3 train.py; done
"$berth" run --on cpus --name no-gpu --no-code -- 'echo "devices=<$CUDA_VISIBLE_DEVICES>"'
sleep 3
"$berth" explain gpu-b
for job in gpu-a gpu-b; do "$berth" logs -f $job; done
"$berth" ps --all
"$berth" top --once 2>/dev/null || true
"$berth" compute delete -n gpus --yes
"$berth" compute delete -n cpus --yes
