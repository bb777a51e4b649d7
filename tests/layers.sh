#!/bin/sh
# Checks the direction of dependencies: a folder includes only what it may, and each outside library has its doors.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0

# folder: the folders it may include
allow() {
	dir=$1
	shift
	for f in $(find "$dir" -name '*.c' -o -name '*.h' -o -name '*.def'); do
		for inc in $(sed -nE 's|^#include "([a-z]+)/.*|\1|p' "$f" | sort -u); do
			ok=0
			for a in "$dir" "$@"; do [ "$inc" = "$a" ] && ok=1; done
			if [ $ok = 0 ]; then
				echo "$f includes $inc/, which $dir/ must not know"
				bad=1
			fi
		done
	done
}
allow common
allow model common
allow proto common
allow kernels common
allow frontend proto model common
allow executor proto common
allow worker proto model kernels common
allow sluice proto model common

# header: the files that may include it
door() {
	header=$1
	shift
	for f in $(grep -rlE "^#include <$header>" common model proto kernels frontend executor worker sluice 2>/dev/null); do
		ok=0
		for a in "$@"; do case "$f" in $a) ok=1 ;; esac; done
		if [ $ok = 0 ]; then
			echo "$f includes <$header>, whose door is $*"
			bad=1
		fi
	done
}
door zmq.h tests/unit/test_zmqpeer.c
door msgpack.h proto/messages.c
door llhttp.h 'frontend/conn_*'
door curl/curl.h 'sluice/client_impl.h'
door pcre2.h 'frontend/onigre.c'
door utf8proc.h 'frontend/*'
door sodium.h common/mac.c common/zsock.c proto/apikeys.c sluice/mesh.c sluice/keysource.c
door 'openssl/.*' frontend/tls.c sluice/hubsum.c

# Stems are unique: they are the prefixes of functions.
for dup in $(find common model proto kernels frontend executor worker sluice -name '*.c' -exec basename {} .c \; | sort | uniq -d); do
	echo "two files are called $dup.c"
	bad=1
done
for header in $(find common model proto kernels frontend executor worker sluice -name '*.h' -exec basename {} .h \; | sort | uniq -d); do
	echo "two files are called $header.h"
	bad=1
done
[ $bad = 0 ] && echo "layers: good"
exit $bad
