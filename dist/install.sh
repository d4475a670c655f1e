#!/bin/sh
# install.sh puts dew where a system has such things (make install, make deb).
#
#   usage: install.sh <folder of the programs> <DESTDIR> <PREFIX> <UNITDIR>
#
# The manual pages and the completion are what the programs say of themselves. They
# are asked from source: the programs may be for another kind of machine.
set -eu

bin=$1 dest=$2 prefix=$3 units=$4
here=$(cd "$(dirname "$0")/.." && pwd)
share=$dest$prefix/share

# said FILE COMMAND… keeps what a command prints.
said() {
	install -d "$(dirname "$1")"
	(cd "$here" && shift && GOARCH='' "$@") >"$1"
	chmod 644 "$1"
}

install -d "$dest$prefix/bin" "$dest$units"
install -m 755 "$bin/dewd" "$bin/dew" "$bin/dew-init" "$bin/dew-sftp" "$bin/dew-static" "$dest$prefix/bin/"
sed "s|/usr/local/bin/|$prefix/bin/|" "$here/dist/dew.service" >"$dest$units/dew.service"
install -m 644 "$here/dist/dew.socket" "$dest$units/"
chmod 644 "$dest$units/dew.service"

said "$share/man/man1/dew.1" go run ./cmd/dew man
said "$share/man/man8/dewd.8" go run ./cmd/dewd man
said "$share/bash-completion/completions/dew" go run ./cmd/dew completion bash
said "$share/zsh/site-functions/_dew" go run ./cmd/dew completion zsh
said "$share/fish/vendor_completions.d/dew.fish" go run ./cmd/dew completion fish
