# These functions take the dependencies of an app from the build cache if they are the
# same as in the last build. They use helper.sh.
#
#   $cache/dependencies.tar   a copy of the folder with the dependencies, which no app can change
#   $cache/dependencies.key   the key of that copy; it is written last, so without it there is no valid copy

# find_key LANGUAGE VERSION sets key to a value that changes with the dependencies. It is
# empty if the files of the app do not determine them.
find_key() {
	key=
	command -v tar >/dev/null && [ -x "$helper" ] || return 0
	key=$("$helper" dependencies "$1" "$2" "$build" "$0" "${helper%/*}/stack") || key=
}

# alone reports whether no earlier buildpack has added files. Dependencies can be built
# with them.
alone() {
	for file in "$deps"/*/*; do
		case $file in "$deps/$index"/*) ;; *) [ ! -e "$file" ] || return 1 ;; esac
	done
}

# restore FOLDER unpacks the dependencies of the last build if they have the same key.
restore() {
	[ -n "$key" ] && [ -f "$cache/dependencies.key" ] && [ "$(cat "$cache/dependencies.key")" = "$key" ] || return 1
	mkdir -p "$1"
	! tar -xf "$cache/dependencies.tar" -C "$1" || return 0
	rm -rf "$1"
	return 1
}

# reused prints that nothing is installed.
reused() { echo '       Using the dependencies of the last build, because nothing that determines them has changed'; }

# forget deletes the stored dependencies. A failed installation leaves none.
forget() { rm -f "$cache/dependencies.key" "$cache/dependencies.tar"; }

# remember FOLDER stores the installed dependencies for the next build.
remember() {
	forget
	[ -n "$key" ] && [ -d "$1" ] || return 0
	if tar -cf "$cache/dependencies.tar" -C "$1" . && printf '%s\n' "$key" >"$cache/dependencies.new"; then
		mv "$cache/dependencies.new" "$cache/dependencies.key"
	else
		echo '       WARNING: The build cache cannot store the dependencies, so the next build installs them again'
		rm -f "$cache/dependencies.new"
		forget
	fi
}
