#!/bin/sh
# need.sh installs the Debian packages of programs that are not found.
#
#   usage: need.sh [--no-start] what=package ...
#
# "what" is a program, a file (it starts with a slash and can have wildcards), or
# "name:<host>", a host name that must resolve. If everything is found, need.sh does
# nothing. With --no-start, the packages' services are not started.
set -eu

# A user's PATH often lacks the sbin folders.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

start=yes
if [ "${1-}" = --no-start ]; then
	start=no
	shift
fi

found() {
	case $1 in
	/*)
		for file in $1; do
			[ -e "$file" ] && return 0
		done
		return 1
		;;
	name:*) getent ahosts "${1#name:}" >/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

packages= missing=
for need; do
	if ! found "${need%%=*}"; then
		missing="$missing ${need%%=*}"
		case " $packages " in
		*" ${need#*=} "*) ;;
		*) packages="$packages ${need#*=}" ;;
		esac
	fi
done
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "need.sh: not found:$missing (this machine has no apt-get: install them by its own means; Debian calls the packages$packages)" >&2
	exit 9
fi
if [ "$(id -u)" != 0 ]; then
	echo "need.sh: cannot install$packages: not root (sudo make setup setup-test)" >&2
	exit 9
fi

if [ $start = no ]; then
	# Debian's packages run policy-rc.d before they start a service; 101 forbids it.
	policy=/usr/sbin/policy-rc.d
	kept=$(mktemp -d)
	[ ! -e $policy ] || cp -pP $policy "$kept/policy-rc.d"
	restore() {
		rm -f $policy
		[ ! -e "$kept/policy-rc.d" ] || cp -pP "$kept/policy-rc.d" $policy
		rm -rf "$kept"
	}
	trap restore EXIT
	trap 'exit 1' HUP INT TERM
	rm -f $policy
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi

echo "installing$packages"
export DEBIAN_FRONTEND=noninteractive
# --no-remove: Debian's containerd conflicts with Docker's own, which must stay.
# shellcheck disable=SC2086 # a list of package names
if ! { apt-get update -qq && apt-get install -qq -y --no-remove --no-install-recommends $packages >/dev/null; }; then
	echo "need.sh: cannot install$packages (if apt-get would remove a package, install what is missing by the means that package came from)" >&2
	exit 9
fi
