# These functions end a built-in buildpack and tell dewd the cause of the failed build.

# need NAME PROGRAM PACKAGE: the program must be there. dewd says how to install the
# Debian package.
need() { command -v "$2" >/dev/null || lacks "$1" "$3"; }

# lacks NAME PACKAGE: it is not there.
lacks() {
	printf '%s\n%s\n' "$1" "$2" >"${deps%/*}/result/missing"
	exit 1
}

# refuse SENTENCE: the app cannot be staged.
refuse() {
	printf '%s\n' "$1" >"${deps%/*}/result/reason"
	exit 1
}
