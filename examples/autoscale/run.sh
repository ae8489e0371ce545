#!/usr/bin/env bash
# A cluster that is empty, grows to four nodes for twenty jobs, and is empty again.
set -euo pipefail
cd "$(dirname "$0")"
berth=${BERTH:-berth}

nodes() { "$berth" compute list-nodes -n cpu --query 'length(@)' -o tsv; }

"$berth" compute create -f cluster.yml -o none
echo "nodes before: $(nodes)"

# They work when all are there, so that the cluster sees how much there is to do however long it takes to submit them.
all=$(mktemp -u)
trap 'rm -f "$all"' EXIT
for i in $(seq 1 20); do
	"$berth" run --on cpu --name "scale-$i" --no-code --no-wait -- "until [ -e $all ]; do sleep 0.1; done; sleep 1" 2>/dev/null
done
touch "$all"

most=0
while [ "$("$berth" job list --query "[?starts_with(name, 'scale-') && status != 'Completed'] | length(@)" -o tsv)" != 0 ]; do
	n=$(nodes)
	if [ "$n" -gt "$most" ]; then
		most=$n
		echo "nodes: $n"
	fi
	sleep 0.2
done
echo "nodes at most: $most"

while [ "$(nodes)" != 0 ]; do sleep 0.5; done
echo "nodes after: 0"
"$berth" compute delete -n cpu --yes
