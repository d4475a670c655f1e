# These functions use dew-buildpack, which is beside the buildpacks.
helper=${0%/*/bin/*}/dew-buildpack

# check_version LANGUAGE VERSION compares the version on the stack with the one that the
# app asks for, and stops the buildpack if they differ.
check_version() {
	if [ ! -x "$helper" ]; then
		echo '       WARNING: dew does not compare versions, because dew-buildpack is not installed beside dewd'
		return 0
	fi
	"$helper" version "$1" "$2" "$build" "${deps%/*}/result/reason" || exit 1
}
