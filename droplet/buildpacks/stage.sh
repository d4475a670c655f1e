# Runs buildpacks as Cloud Foundry does: detect, supply, finalize or compile, release.
# The paths are those of Cloud Foundry, because buildpacks are written for them.
#
#   /tmp/app          the pushed app, and the app to run
#   /tmp/cache        stored for the next build of the app
#   /tmp/deps/<n>     the files of the n-th buildpack
#   /tmp/profile.d    scripts that are sourced before the app starts
#   /tmp/buildpacks   <n>/, the file plan or all (to try): <n> <how to fetch it> <name>, and stack: its ID
#   /tmp/result       the results for dewd: detected, used, release.yml, Procfile, launch-<n>.yml, config-<n>.yml,
#                     version-<n>, failed, cache-unchanged, and from the built-in buildpacks: missing, reason,
#                     go-version
#
# An argument replaces /tmp.
set -u
top=${1:-/tmp}
build=$top/app cache=$top/cache deps=$top/deps profile=$top/profile.d packs=$top/buildpacks result=$top/result
mkdir -p "$build" "$cache" "$deps" "$profile" "$result" "$HOME/tmp"
umask 022
no_app=222 no_compile=223 no_release=224 no_buildpack=225

# cache_state WORD prints a checksum of the names and times of the files in the cache. No program
# can set the change time of a file, so a write always changes the result. Without find, the
# result is that of WORD.
cache_state() {
	{ find "$cache" -printf '%P %y %m %s %T@ %C@ %l\n' 2>/dev/null || echo "$1"; } | md5sum
}
cached=$(cache_state before)

# fail CODE SENTENCE
fail() {
	printf '%s\n' "$2" >"$result/failed"
	exit "$1"
}

# download URL FILE and extract FILE FOLDER use the programs of the stack, or return 127 if there is none.
download() {
	if command -v curl >/dev/null; then
		curl --fail --silent --show-error --location --proto '=http,https' --retry 2 --output "$2" -- "$1"
	elif command -v wget >/dev/null; then
		wget --quiet --tries 3 --output-document "$2" -- "$1"
	elif command -v python3 >/dev/null; then
		python3 -c 'import sys, shutil, urllib.request
with urllib.request.urlopen(sys.argv[1]) as r, open(sys.argv[2], "wb") as f: shutil.copyfileobj(r, f)' "$1" "$2" 2>/dev/null
	else
		return 127
	fi
}
extract() {
	if command -v unzip >/dev/null; then
		unzip -q -o "$1" -d "$2"
	elif command -v python3 >/dev/null; then
		python3 -m zipfile -e "$1" "$2"
	elif command -v jar >/dev/null; then
		(cd "$2" && jar -xf "$1")
	else
		return 127
	fi
}

# unpack N NAME downloads and unpacks a buildpack that is a zip.
unpack() {
	read -r url <"$packs/$1.url" # with its secrets, which the name does not have
	said=$(download "${url%%#*}" "$packs/$1.zip" 2>&1 </dev/null)
	code=$?
	[ -z "$said" ] || printf '%s\n' "$said" | sed 's,//[^/]*@,//,g' >&2
	[ $code -ne 127 ] || fail $no_buildpack "cannot fetch buildpack $2: the stack has neither curl, wget nor python3"
	[ $code -eq 0 ] || fail $no_buildpack "cannot fetch buildpack $2: the download exited with status $code"
	mkdir -p "$packs/$1"
	extract "$packs/$1.zip" "$packs/$1" >/dev/null 2>&1 </dev/null
	code=$?
	[ $code -ne 127 ] || fail $no_buildpack "cannot unpack buildpack $2: the stack has neither unzip, python3 nor jar"
	[ $code -eq 0 ] || fail $no_buildpack "cannot unpack buildpack $2: the file is not a zip archive"
	rm -f "$packs/$1.zip"
}

# fetch N HOW NAME fetches a buildpack if necessary, and makes its scripts executable.
fetch() {
	if [ "$2" = git ]; then
		read -r url <"$packs/$1.url" # with its secrets, which the name does not have
		branch=
		case $url in *'#'*) branch=${url#*#} url=${url%%#*} ;; esac
		command -v git >/dev/null || fail $no_buildpack "cannot fetch buildpack $3: the stack has no git"
		said=$(GIT_TERMINAL_PROMPT=0 git clone --quiet --depth 1 --recurse-submodules --shallow-submodules \
			${branch:+--branch "$branch"} -- "$url" "$packs/$1" 2>&1 </dev/null)
		code=$?
		[ -z "$said" ] || printf '%s\n' "$said" | sed 's,//[^/]*@,//,g' >&2
		[ $code -eq 0 ] || fail $no_buildpack "cannot fetch buildpack $3: git clone exited with status $code"
	fi
	[ "$2" != zip ] || unpack "$1" "$3"
	# A zip can lack file modes, and can have one top folder.
	if [ ! -d "$packs/$1/bin" ]; then
		for inner in "$packs/$1"/*/bin; do
			[ -d "$inner" ] && mv "${inner%/bin}" "$packs/$1.inner" && rm -rf "$packs/$1" && mv "$packs/$1.inner" "$packs/$1"
			break
		done
	fi
	[ -d "$packs/$1/bin" ] || fail $no_buildpack "buildpack $3 has no bin folder"
	chmod -R u+rwX "$packs/$1" && chmod u+x "$packs/$1"/bin/*
}

# keep N NAME sets own to the buildpack's part of the cache. Two versions of a buildpack share it.
keep() {
	own=$cache/$(printf '%s' "$2" | md5sum | cut -d ' ' -f 1)
	mkdir -p "$own" "$deps/$1"
}

# step NAME PHASE PROGRAM ARGUMENT...
step() {
	what=$1 phase=$2
	shift 2
	"$@" </dev/null
	code=$?
	[ $code -eq 0 ] || fail $no_compile "buildpack $what: bin/$phase exited with status $code"
}

# knows SCRIPT checks whether this script of the current buildpack detects the app.
knows() {
	[ -f "$packs/$n/bin/$1" ] || return 1
	found=$("$packs/$n/bin/$1" "$build" </dev/null) || return 1
	printf '%s\n' "$found" >"$result/detected"
	printf '%s\n' "$n" >"$result/used"
	printf '%s %s %s\n' "$n" "$how" "$name" >"$packs/plan"
}

# detect finds the first buildpack that detects the app, otherwise the first whose
# detect-last does.
detect() {
	while read -r n how name; do
		fetch "$n" "$how" "$name"
		! knows detect || return 0
	done <"$packs/all"
	while read -r n how name; do
		! knows detect-last || return 0
	done <"$packs/all"
	fail $no_app "An app was not successfully detected by any available buildpack"
}

if [ -f "$packs/all" ]; then
	detect
	fetched=1
else
	fetched=0
fi

index=0 last=$(($(wc -l <"$packs/plan") - 1))
while read -r n how name; do
	[ $fetched = 1 ] || fetch "$n" "$how" "$name"
	bin=$packs/$n/bin
	# As on Cloud Foundry, the folders of ten buildpacks and more have two digits.
	slot=$index
	[ $last -lt 9 ] || slot=$(printf '%02d' "$index")
	keep "$slot" "$name"
	echo "-----> $name"
	if [ $index -lt $last ]; then
		[ -f "$bin/supply" ] || fail $no_compile "buildpack $name has no bin/supply. Only the last buildpack can be without it"
		step "$name" supply "$bin/supply" "$build" "$own" "$deps" "$slot"
	elif [ -f "$bin/finalize" ]; then
		[ ! -f "$bin/supply" ] || step "$name" supply "$bin/supply" "$build" "$own" "$deps" "$slot"
		step "$name" finalize "$bin/finalize" "$build" "$own" "$deps" "$slot" "$profile"
	elif [ -f "$bin/compile" ]; then
		[ $index -eq 0 ] || echo "       WARNING: $name has no bin/finalize, so it cannot use the files of the buildpacks before it"
		step "$name" compile "$bin/compile" "$build" "$own"
	else
		fail $no_compile "buildpack $name has neither bin/finalize nor bin/compile: the last buildpack needs one of them"
	fi
	if [ $index -eq $last ]; then
		[ -f "$bin/release" ] || fail $no_release "buildpack $name has no bin/release"
		"$bin/release" "$build" </dev/null >"$result/release.yml" || fail $no_release "buildpack $name: bin/release exited with status $?"
	fi
	[ ! -f "$deps/$slot/launch.yml" ] || cp "$deps/$slot/launch.yml" "$result/launch-$index.yml"
	[ ! -f "$deps/$slot/config.yml" ] || cp "$deps/$slot/config.yml" "$result/config-$index.yml"
	[ ! -f "$packs/$n/VERSION" ] || head -c 512 "$packs/$n/VERSION" >"$result/version-$index"
	index=$((index + 1))
done <"$packs/plan"
[ "$(cache_state after)" != "$cached" ] || echo yes >"$result/cache-unchanged"
[ ! -f "$build/Procfile" ] || cp "$build/Procfile" "$result/Procfile"
