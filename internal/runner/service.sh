# Runs a service of a job beside its command: sh service.sh DIRECTORY TYPE PORT BASE LOGS.
# DIRECTORY has the secret; the log and, at the end, the exit code are written there. Code 127 says
# that the program is not in the environment.
dir=$1 type=$2 port=$3 base=$4 logs=$5
exec </dev/null >>"$dir/log" 2>&1
python=$(command -v python || command -v python3)

has() { [ -n "$python" ] && "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }

serve() {
	secret=$(cat "$dir/secret") || return 1
	case $type in
	JupyterLab)
		has jupyterlab || return 127
		JUPYTER_TOKEN=$secret "$python" -m jupyterlab --no-browser --allow-root --ip=127.0.0.1 --port="$port" --ServerApp.port_retries=0 \
			--ServerApp.base_url="$base/" --ServerApp.root_dir="$PWD" --PasswordIdentityProvider.hashed_password= \
			--ServerApp.disable_check_xsrf=True --ServerApp.allow_remote_access=True --ServerApp.trust_xheaders=True \
			--ServerApp.allow_unauthenticated_access=False --ServerApp.quit_button=False \
			--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url=None
		;;
	TensorBoard)
		has tensorboard || return 127
		BERTH_SERVICE_SECRET=$secret "$python" "$dir/board.py" "$logs" "$port"
		;;
	VSCode)
		command -v code-server >/dev/null || return 127
		HASHED_PASSWORD=$secret code-server --auth password --bind-addr "127.0.0.1:$port" --disable-telemetry --disable-update-check \
			--user-data-dir "$dir/data" --extensions-dir "$dir/extensions" --config "$dir/config.yaml" "$PWD"
		;;
	*) echo "there is no service of type $type" && return 1 ;;
	esac
}

serve
code=$?
echo "$code" >"$dir/exit.new" && mv "$dir/exit.new" "$dir/exit"
