#!/bin/sh
# install.sh installs dew into the folders of a system, or removes it from there
# (make install, make uninstall, make deb).
#
#   usage: install.sh install <programs> <native> <DESTDIR> <PREFIX> <UNITDIR>
#          install.sh uninstall <DESTDIR> <PREFIX> <UNITDIR>
#
# <programs> is the folder of the programs to install, which can be for another
# architecture. <native> is the folder of programs that run on this machine: they
# print the manual pages and the completion scripts.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
programs='dewd dew dew-init dew-sftp dew-static dew-buildpack'
man1=share/man/man1/dew.1
man8=share/man/man8/dewd.8
bash=share/bash-completion/completions/dew
zsh=share/zsh/site-functions/_dew
fish=share/fish/vendor_completions.d/dew.fish
dashboard=share/dew/grafana-dashboard.json

# generate FILE COMMAND… writes the output of a command to a file.
generate() {
	file=$1
	shift
	install -d "$(dirname "$file")"
	"$@" >"$file"
	chmod 644 "$file"
}

install_dew() {
	from=$1 native=$2 to=$3$4 prefix=$4 units=$3$5
	install -d "$to/bin" "$units"
	for program in $programs; do
		install -m 755 "$from/$program" "$to/bin/"
	done
	sed "s|/usr/local/bin/|$prefix/bin/|" "$here/dist/dew.service" >"$units/dew.service"
	install -m 644 "$here/dist/dew.socket" "$units/"
	chmod 644 "$units/dew.service"

	generate "$to/$man1" "$native/dew" man
	generate "$to/$man8" "$native/dewd" man
	generate "$to/$bash" "$native/dew" completion bash
	generate "$to/$zsh" "$native/dew" completion zsh
	generate "$to/$fish" "$native/dew" completion fish
	install -d "$to/share/dew"
	install -m 644 "$here/dist/grafana-dashboard.json" "$to/$dashboard"
}

# Refuses while dewd runs: apps can be running, and without dewd nothing can stop them.
uninstall_dew() {
	to=$1$2 units=$1$3
	if [ -z "$1" ] && [ -e /run/dew/dewd.pid ] && ! flock --nonblock --shared /run/dew/dewd.pid true; then
		echo "install.sh: cannot uninstall: dewd is running. Stop the apps and dewd first: dew shutdown --apps" >&2
		echo "(under systemd: systemctl disable --now dew && dewd teardown)" >&2
		exit 1
	fi
	for program in $programs; do
		rm -f "$to/bin/$program"
	done
	for file in "$man1" "$man8" "$bash" "$zsh" "$fish" "$dashboard"; do
		rm -f "$to/$file"
	done
	[ ! -d "$to/share/dew" ] || rmdir --ignore-fail-on-non-empty "$to/share/dew"
	rm -f "$units/dew.service" "$units/dew.socket"
	[ -n "$1" ] || [ ! -e /var/lib/dew ] ||
		echo "apps, logs and databases are kept in /var/lib/dew: remove that folder to delete them"
}

case $1 in
install) shift && install_dew "$@" ;;
uninstall) shift && uninstall_dew "$@" ;;
*)
	echo "install.sh: install or uninstall, not $1" >&2
	exit 2
	;;
esac
