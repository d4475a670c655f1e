#!/bin/sh
# Runs every fuzz test for some time, and lists those that failed.
#
#   usage: dist/fuzz.sh TIME FOLDER...
#
# Go keeps the inputs that reach new code in its build cache. With KEEP=1, they are stored
# in fuzz-corpus.tar.gz. If that file exists, its inputs are the start of a run.
set -eu

GO=${GO:-go}
time=$1
shift
corpus=$(dirname "$0")/fuzz-corpus.tar.gz
cache=$("$GO" env GOCACHE)/fuzz
module=$("$GO" list -m)
mkdir -p "$cache"
if [ -e "$corpus" ]; then
	tar -xzf "$corpus" -C "$cache"
fi

failed=
for dir in "$@"; do
	for name in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$dir"/*_test.go); do
		echo "$dir $name"
		"$GO" test -C "$dir" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 100x || failed="$failed $dir:$name"
	done
done

if [ "${KEEP:-}" = 1 ] && [ -d "$cache/$module" ]; then
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - -C "$cache" "$module" | gzip -9n >"$corpus.new"
	mv "$corpus.new" "$corpus"
	echo "$(find "$cache/$module" -type f | wc -l) inputs are in $corpus"
fi
if [ -n "$failed" ]; then
	echo "failed:$failed" >&2
	exit 1
fi
