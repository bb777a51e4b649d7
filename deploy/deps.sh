#!/bin/sh
# Installs the Debian or Ubuntu packages that Sluice needs, naming them first; does nothing when all are there.
#
#   deploy/deps.sh build     to build and run
#   deploy/deps.sh test      also what the tests use
#   deploy/deps.sh --list test
#
# A name "a|b" means: the first of them that this release has. Knows Debian 12 and 13 and Ubuntu 24.04.
set -eu

build="gcc make libc6-dev pkg-config libuv1-dev libmsgpack-c-dev|libmsgpack-dev libllhttp-dev|node-llhttp
libjansson-dev libpcre2-dev libutf8proc-dev libsodium-dev libxxhash-dev libcurl4-openssl-dev libssl-dev libmimalloc-dev ca-certificates python3 python3-pip"
test="$build python3-venv libcmocka-dev libzmq3-dev libsimde-dev clang libclang-rt-dev curl wrk openssl nginx-light haproxy procps iproute2 xz-utils git prometheus"

list=0
if [ "${1:-}" = --list ]; then
	list=1
	shift
fi
case "${1:-build}" in
build) want=$build ;;
test) want=$test ;;
*) echo "usage: deploy/deps.sh [--list] build|test" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "This system has no apt: install the counterparts of these packages yourself:" >&2
	echo "$want" >&2
	command -v pkg-config >/dev/null && exit 0
	exit 1
fi

installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c1-2)" = ii ]; }
known() { apt-cache show "$1" >/dev/null 2>&1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "Root is needed for: $*" >&2
		echo "Run it as root, then try again." >&2
		exit 1
	fi
}

# Which packages are missing, before anything is asked of the network.
missing=""
for item in $want; do
	found=0
	for name in $(echo "$item" | tr '|' ' '); do
		if installed "$name"; then found=1; fi
	done
	[ $found = 1 ] || missing="$missing $item"
done
[ -n "$missing" ] || exit 0

if [ $list = 1 ]; then
	echo "$missing"
	exit 0
fi

echo "Sluice needs packages that are not installed:$missing"
as_root apt-get update -q
names=""
for item in $missing; do
	for name in $(echo "$item" | tr '|' ' '); do
		if known "$name"; then
			names="$names $name"
			break
		fi
	done
done
# shellcheck disable=SC2086
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $names
