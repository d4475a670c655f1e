# find_app FOLDER sets main and path (of an unpacked jar), war (of an unpacked web app) or
# jar (in the folder).
find_app() {
	main='' path='' jar='' war=''
	if [ -f "$1/META-INF/MANIFEST.MF" ]; then
		manifest=$(unfold <"$1/META-INF/MANIFEST.MF")
		main=$(printf '%s\n' "$manifest" | sed -n 's/^[Mm]ain-[Cc]lass:[[:space:]]*\([A-Za-z0-9_.$]*\).*/\1/p' | head -n 1)
		for entry in $(printf '%s\n' "$manifest" | sed -n 's/^[Cc]lass-[Pp]ath:[[:space:]]*//p' | head -n 1); do
			case $entry in *[!A-Za-z0-9_./+@-]*) continue ;; esac
			path="$path:\$HOME/$entry"
		done
		[ -z "$main" ] || return 0
	fi
	if [ -d "$1/WEB-INF" ]; then
		war=yes
		return 0
	fi
	[ ! -f "$1/META-INF/MANIFEST.MF" ] || return 1
	for file in "$1"/*.jar "$1"/*.war; do
		[ -f "$file" ] || continue
		case $(basename "$file") in *[!A-Za-z0-9_.+@-]*) continue ;; esac
		if is_main "$file"; then
			jar=$(basename "$file")
			return 0
		fi
	done
	return 1
}

# is_main JAR checks for a main class, if the stack has a program to read the jar.
is_main() {
	if command -v unzip >/dev/null; then
		unzip -p "$1" META-INF/MANIFEST.MF 2>/dev/null | unfold | grep -qi '^main-class:'
	elif command -v jar >/dev/null; then
		look=$(mktemp -d) && file=$(realpath "$1")
		(cd "$look" && jar -xf "$file" META-INF/MANIFEST.MF) 2>/dev/null
		unfold <"$look/META-INF/MANIFEST.MF" 2>/dev/null | grep -qi '^main-class:'
		found=$?
		rm -rf "$look"
		return $found
	else
		return 0
	fi
}

# unfold joins the lines of a manifest, which are split after 72 bytes.
unfold() { tr -d '\r' | sed -e ':a' -e '$!N' -e 's/\n //' -e 'ta' -e 'P' -e 'D'; }

# find_java prints the java of JAVA_HOME, otherwise the one in PATH.
find_java() {
	if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
		echo "$JAVA_HOME/bin/java"
	else
		command -v java || true
	fi
}
