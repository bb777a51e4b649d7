#!/bin/bash
# Checks that need the folder ../shared (or $SLUICE_SHARED): its HTTP probes against one and four frontends, and its bad model
# files. Without it they are skipped, by name.
#
#   tests/e2e/shared_checks.sh RESULTS            the probes, and `inspect` of the bad files
#   tests/e2e/shared_checks.sh --long RESULTS     also a server for each bad file, and the load generator
set -u
cd "$(dirname "$0")/../.." || exit 1
long=0
if [ "${1:-}" = --long ]; then
	long=1
	shift
fi
results=${1:-build/results.tsv}
shared=${SLUICE_SHARED:-../shared}
run() { python3 tests/run_tests.py --results "$results" command "$@"; }
skip() { printf 'shared\t%s (no %s)\tskipped\t0\n' "$1" "$shared" >>"$results"; echo "skipped  $1: no $shared"; }
bad=0

if [ -f "$shared/tools/probe_http.py" ]; then
	# One frontend: all of them. Four: those where it matters who answers, or all with --long.
	some="R03,R12,R13,R16,R47,R48,R50,R54"
	[ $long = 1 ] && some=""
	probe() {
		run "probe_http, $1 frontends" -- tests/e2e/with_server.py --frontends "$1" --model-name smollm2 -- \
			python3 "$shared/tools/probe_http.py" --base-url '{url}' --model smollm2 --timeout 60 --only "$2" || bad=1
	}
	probe 1 ""
	probe 4 "$some"
	# What a key changes: preflights, early answers, connections.
	run "probe_http, with a key" -- tests/e2e/with_server.py --frontends 2 --model-name smollm2 --key probe-key -- \
		python3 "$shared/tools/probe_http.py" --base-url '{url}' --model smollm2 --timeout 60 --api-key probe-key --only R01,R03,R05,R07,R08,R13,R47 || bad=1
else
	skip "probe_http"
fi
run "bad model files, inspect" -- python3 tests/e2e/bad_models_check.py || bad=1
if [ $long = 1 ]; then
	run "bad model files, serve" -- python3 tests/e2e/bad_models_check.py --serve || bad=1
	if [ -f "$shared/tools/loadgen.c" ]; then
		mkdir -p build/tests
		run "loadgen builds" -- gcc -O2 -pthread -o build/tests/loadgen "$shared/tools/loadgen.c" -lm || bad=1
		run "loadgen, 64 streams" -- tests/e2e/with_server.py --frontends 2 --model-name smollm2 -- \
			build/tests/loadgen --port '{port}' --model smollm2 --concurrency 64 --requests 128 --max-tokens 64 --ignore-eos || bad=1
	else
		skip "loadgen"
	fi
fi
exit $bad
