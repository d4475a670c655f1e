#!/bin/bash
# Fetches the third-party scripts of the console with npm, and compares them with the
# checksums in VERSIONS. With --update it writes the checksums instead.
set -euo pipefail

cd "$(dirname "$0")/.."
vendor=console/assets/vendor
axe=cmd/dewd/testdata/axe

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# take PACKAGE@VERSION FOLDER SOURCE=TARGET ...
take() {
	local package=$1 folder=$2 archive
	shift 2
	archive=$(cd "$work" && npm pack --silent "$package")
	rm -rf "$work/package"
	tar -xzf "$work/$archive" -C "$work"
	mkdir -p "$folder"
	for file in "$@"; do
		# The source maps are not vendored, so that browsers must not ask for them.
		sed '/^\/\/# sourceMappingURL=/d' "$work/package/${file%%=*}" > "$folder/${file##*=}"
	done
}

# version NAME prints the version that VERSIONS names.
version() { awk -v name="$1" '$1 == "#" && $2 == name { print $2 "@" $3 }' "$vendor/VERSIONS"; }

take "$(version uplot)" "$vendor" dist/uPlot.iife.min.js=uplot.js dist/uPlot.min.css=uplot.css LICENSE=uplot.LICENSE
take "$(version @xterm/xterm)" "$vendor" lib/xterm.mjs=xterm.mjs css/xterm.css=xterm.css LICENSE=xterm.LICENSE
take "$(version @xterm/addon-fit)" "$vendor" lib/addon-fit.mjs=addon-fit.mjs LICENSE=addon-fit.LICENSE
take "$(version axe-core)" "$axe" axe.min.js=axe.min.js LICENSE=LICENSE

if [ "${1:-}" = --update ]; then
	names=$(grep '^#' "$vendor/VERSIONS")
	{ printf '%s\n' "$names"; sha256sum "$vendor"/*.* "$axe"/*; } > "$work/VERSIONS"
	mv "$work/VERSIONS" "$vendor/VERSIONS"
fi
grep -v '^#' "$vendor/VERSIONS" | sha256sum --check --quiet
