#!/bin/sh
# reproducible.sh builds the newest commit twice, in two folders and with two build caches,
# and compares the programs and the packages (make reproducible).
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
commit=$(git -C "$here" rev-parse HEAD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for folder in first another/second; do
	echo "==> building in $folder: some minutes"
	mkdir -p "$work/$(dirname $folder)"
	git clone -q "$here" "$work/$folder"
	git -C "$work/$folder" checkout -q "$commit"
	GOCACHE="$work/cache-$(basename $folder)" make --no-print-directory -C "$work/$folder" tarballs deb >"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		exit 1
	}
	(cd "$work/$folder/bin" && find . -type f | sort | xargs sha256sum) >"$work/$(basename $folder).sums"
	rm -rf "$work/cache-$(basename $folder)"
done
if ! diff "$work/first.sums" "$work/second.sums"; then
	echo 'reproducible.sh: the two builds differ' >&2
	exit 1
fi
echo "$(wc -l <"$work/first.sums") files are the same in both builds:"
cat "$work/first.sums"
