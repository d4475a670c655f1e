# These functions stop a built-in buildpack and report the cause of the failed build to dewd.

# need NAME PROGRAM PACKAGE fails if the program is not found. dewd then prints how to
# install the Debian package.
need() { command -v "$2" >/dev/null || lacks "$1" "$3"; }

# lacks NAME PACKAGE reports that a program is missing.
lacks() {
	printf '%s\n%s\n' "$1" "$2" >"${deps%/*}/result/missing"
	exit 1
}

# refuse SENTENCE reports why the app cannot be staged.
refuse() {
	printf '%s\n' "$1" >"${deps%/*}/result/reason"
	exit 1
}
