#!/bin/sh
# Checks the English of the docs, and of the comments, messages and help in the source,
# with vale. The rules are in tools/styles/dew.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

vale=$("$go" tool -modfile=tools/go.mod -n vale)
"$go" run -C tools ./texts "$PWD" "$out"
mkdir -p "$out/help/cli/testdata"
cp cli/testdata/help.txt "$out/help/cli/testdata/help.txt"
cp .vale.ini "$out"
sed -i "s|^StylesPath = .*|StylesPath = $PWD/tools/styles|" "$out/.vale.ini"

status=0
"$vale" --output=line README.md CONTRIBUTING.md CHANGELOG.md docs examples || status=1
# The texts keep the paths and lines of the source.
(cd "$out" && "$vale" --output=line comments messages help) >"$out/found" || status=1
sed -E 's/^(comments|messages)\/(.*)\.go\.txt:/\2.go:/; s/^help\///' "$out/found"
exit $status
