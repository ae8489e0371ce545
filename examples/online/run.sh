#!/usr/bin/env bash
# An online endpoint, as with az: blue answers, green is tried with its name and with a tenth of the requests, and takes over.
# Then the same with curl.
set -euo pipefail
berth=${BERTH:-berth}
cd "$(dirname "$0")"

"$berth" online-endpoint create -f endpoint.yml -o none
"$berth" online-deployment create -f blue.yml --all-traffic -o none
"$berth" online-endpoint invoke -n houses -r request.json

"$berth" online-deployment create -f blue.yml --name green --set environment_variables.CURRENCY=USD -o none
"$berth" online-endpoint invoke -n houses -r request.json --deployment-name green
"$berth" online-endpoint update -n houses --traffic "blue=90 green=10" -o none
"$berth" online-endpoint update -n houses --traffic "blue=0 green=100" -o none
"$berth" online-deployment delete -e houses -n blue --yes

key=$("$berth" online-endpoint get-credentials -n houses --query primaryKey -o tsv)
uri=$("$berth" online-endpoint show -n houses --query scoring_uri -o tsv)
home=${BERTH_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/berth} # of a server on this machine; CA=… is the ca.pem of another one
curl --silent --show-error --fail --cacert "${CA:-$home/tls/ca.pem}" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' -d @request.json "$uri"
echo
"$berth" endpoint explain houses
"$berth" online-endpoint delete -n houses --yes
