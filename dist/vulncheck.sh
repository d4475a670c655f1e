#!/bin/sh
# Checks the programs for known vulnerabilities with govulncheck. It needs the database:
# from the internet, or from a copy in the folder VULNDB. It prints nothing if the check
# found nothing. If it cannot read the database, it says that it has checked nothing, and
# fails only if VULNDB is set.
set -u
cd "$(dirname "$0")/.."
go=${GO:-go}
db=https://vuln.go.dev
if [ -n "${VULNDB:-}" ]; then
	db=file://$(cd "$VULNDB" && pwd) || exit 1
	[ -e "$VULNDB/index/modules.json" ] || [ -e "$VULNDB/index/modules.json.gz" ] || {
		echo "lint: cannot check for vulnerabilities: $VULNDB has no file index/modules.json (copy the database from https://vuln.go.dev/vulndb.zip)" >&2
		exit 1
	}
fi
# govulncheck reports 3 for vulnerabilities and 1 for all errors, so the database is
# asked first.
if [ "$db" = https://vuln.go.dev ] && ! curl -fsS --max-time 20 -o /dev/null "$db/index/modules.json" 2>/dev/null; then
	echo 'lint: NOT checked for known vulnerabilities: https://vuln.go.dev is not reachable. To check, set VULNDB to a folder with a copy of the database.' >&2
	exit 0
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for module in . examples; do
	"$go" tool -modfile="$PWD/tools/go.mod" govulncheck -C "$module" -db "$db" ./... >"$out" 2>&1 || {
		cat "$out"
		exit 1
	}
done
