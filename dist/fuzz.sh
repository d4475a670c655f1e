#!/bin/sh
# Runs every fuzz test for some time, and lists those that failed.
#
#   usage: dist/fuzz.sh TIME FOLDER...
#
# Go keeps the inputs that reach new code in its build cache. With KEEP=1, they are stored
# in fuzz-corpus.tar.gz. If that file exists, its inputs are the start of a run. With
# JOBS=2, two tests run at a time, each with its share of the processors.
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

jobs=${JOBS:-1}
workers=$(($(nproc) / jobs))
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export GO time out workers

# one FOLDER NAME runs one test. Its output stays together.
one='
	file=$out/$(echo "$1.$2" | tr / _)
	status=0
	"$GO" test -C "$1" -run "^$" -parallel "$((workers > 0 ? workers : 1))" -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 100x >"$file" 2>&1 || status=$?
	echo "$1 $2"
	cat "$file"
	rm "$file"
	[ "$status" = 0 ] || echo "$1:$2" >>"$out/failed"
'
for dir in "$@"; do
	sed -nE "s|^func (Fuzz[A-Za-z0-9_]+)\\(.*|$dir \\1|p" "$dir"/*_test.go
done | xargs -n 2 -P "$jobs" sh -c "$one" sh
failed=$(cat "$out/failed" 2>/dev/null | tr '\n' ' ' || true)

if [ "${KEEP:-}" = 1 ] && [ -d "$cache/$module" ]; then
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - -C "$cache" "$module" | gzip -9n >"$corpus.new"
	mv "$corpus.new" "$corpus"
	echo "$(find "$cache/$module" -type f | wc -l) inputs are in $corpus"
fi
if [ -n "$failed" ]; then
	echo "failed: $failed" >&2
	exit 1
fi
