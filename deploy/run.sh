#!/bin/bash
# Serves a model and shows that it works: starts `sluice serve`, waits until it is ready, asks one question through the public
# port, prints what to try next, and serves until Ctrl-C. Arguments go to `sluice serve`.
#
#   deploy/run.sh MODEL.gguf [options of sluice serve]
set -u

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${SLUICE_BIN_DIR:-$root/build/bin}
port=${SLUICE_PORT:-8000}
host=${SLUICE_HOST:-127.0.0.1}
question=${QUESTION:-What is a sluice? Answer in one sentence.}
args=("$@")
for ((i = 0; i < ${#args[@]}; i++)); do
	case "${args[i]}" in
	--port | -p) port=${args[i + 1]:-$port} ;;
	--port=*) port=${args[i]#--port=} ;;
	--host) host=${args[i + 1]:-$host} ;;
	--host=*) host=${args[i]#--host=} ;;
	esac
done
case "$host" in 0.0.0.0 | :: | localhost) host=127.0.0.1 ;; esac
url=http://$host:$port
case "$host" in *:*) url="http://[$host]:$port" ;; esac

"$bin/sluice" serve "$@" &
server=$!
trap 'kill -INT $server 2>/dev/null' INT TERM

# Readiness over plain TCP, so that curl need not be installed.
ready() {
	exec 3<>"/dev/tcp/$host/$port" || return 1
	printf 'GET /ready HTTP/1.0\r\n\r\n' >&3
	IFS= read -r -t 5 status <&3
	exec 3>&-
	[[ $status == *" 200 "* ]]
} 2>/dev/null

while kill -0 $server 2>/dev/null && ! ready; do sleep 0.1; done
sleep 0.3 # another server on this port answers too; ours has found out by now, and ended
if kill -0 $server 2>/dev/null; then
	printf '\n\033[1m> %s\033[0m\n' "$question"
	"$bin/sluice" chat --url "$url" --max-tokens 120 --temperature 0 "$question"
	model=$("$bin/sluice" chat --url "$url" --print-model)
	cat <<-END

	Serving at $url  (Ctrl-C stops). Try:

	  curl $url/v1/chat/completions -H 'Content-Type: application/json' \\
	    -d '{"model": "$model", "messages": [{"role": "user", "content": "Hello!"}], "stream": true}' -N

	  $bin/sluice chat --url $url

	END
fi

# wait returns early when a signal arrives: wait until the server has really ended.
while kill -0 $server 2>/dev/null; do wait $server; code=$?; done
wait $server 2>/dev/null; last=$?
[ "$last" = 127 ] && last=${code:-1}
exit "$last"
