#!/bin/sh
# Copies the output of `go test` and prints the ten slowest packages at the end.
#
#   usage: go test ./... | dist/slowest.sh
set -eu

log=$(mktemp)
trap 'rm -f "$log"' EXIT
tee "$log"
# ok or FAIL, the package and its time, with tabs between them. A package that was
# cached or did not compile has no time.
slowest=$(awk -F '\t' '($1 ~ /^ok *$/ || $1 == "FAIL") && $3 ~ /^[0-9.]+s( |$)/ { printf "%8.1f s  %s\n", $3, $2 }' "$log" | sort -rn | head -n 10)
if [ -n "$slowest" ]; then
	printf '\nThe slowest packages:\n%s\n' "$slowest"
fi
