#!/bin/sh
# deb.sh creates a Debian package of the checkout (make deb).
#
#   usage: deb.sh <version> <amd64|arm64>
#
# The package installs the unit and does not enable it: the user decides when a
# daemon starts.
set -eu

version=$1 arch=$2
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
if ! command -v dpkg-deb >/dev/null; then
	echo "deb.sh: dpkg-deb was not found. It is part of Debian and its derivatives; make tarballs works everywhere" >&2
	exit 9
fi

# Without a tag, the version is a commit hash. The time of the commit comes before it,
# because apt refuses to replace a package by an older one. The number must sort before
# every release, and after 0~git+HASH, the numbers of earlier packages.
number=$(printf %s "${version#v}" | tr - +)
case $number in
[0-9]*.[0-9]*) ;;
*) number=0~pre$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d%H%M%S)+$number ;;
esac

# The files have the time of the newest commit, so that two builds are the same.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
# The programs for this machine print the manual pages. For the machine's architecture,
# make build has already built them.
native=bin
make --no-print-directory build ARCH="$(go env GOHOSTARCH)" BIN="$native"
if [ "$arch" = "$(go env GOHOSTARCH)" ]; then
	programs=$native
else
	programs=bin/$arch
	make --no-print-directory build ARCH="$arch" BIN="$programs"
fi
dist/install.sh install "$programs" "$native" "$tree" /usr /lib/systemd/system
gzip -9n "$tree"/usr/share/man/man*/*
install -D -m 644 LICENSE "$tree/usr/share/doc/dew/copyright"
go run -trimpath ./dist/parts -version "$version" -out "$tree/usr/share/doc/dew" "$programs/dew" "$programs/dewd" "$programs"/dew-*
gzip -9n "$tree/usr/share/doc/dew/LICENSES.txt"
install -d "$tree/usr/share/zsh/vendor-completions" "$tree/DEBIAN"
mv "$tree/usr/share/zsh/site-functions/_dew" "$tree/usr/share/zsh/vendor-completions/_dew"
rmdir "$tree/usr/share/zsh/site-functions"

cat >"$tree/DEBIAN/control" <<END
Package: dew
Version: $number
Architecture: $arch
Maintainer: the authors of dew <dew@localhost>
Section: admin
Priority: optional
Installed-Size: $(du -sk "$tree" | cut -f1)
Depends: containerd (>= 1.6) | containerd.io, runc (>= 1.1) | containerd.io
Recommends: libnss-myhostname
Suggests: mmdebstrap, postgresql, mariadb-server, redis-server
Description: run Cloud Foundry style apps with their sidecars on this machine
 dewd builds droplets from pushed apps and runs each instance, the main process
 and its sidecars, in one containerd task with one network namespace. dew is its
 command line; the stock cf CLI works with it as well.
END

# Instances keep running when dewd stops, and while its package is upgraded. Only
# removing the package stops them.
cat >"$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
if [ "$1" = configure ] && [ -z "$2" ]; then
	if [ -d /run/systemd/system ]; then
		echo 'dew is installed. Start it now and at every boot: systemctl enable --now dew'
	else
		echo 'dew is installed. Start it: dewd'
	fi
fi
END
cat >"$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ]; then
	if [ -r /etc/default/dew ]; then
		set -a
		. /etc/default/dew
		set +a
	fi
	if [ -d /run/systemd/system ]; then
		systemctl disable --now dew.socket dew.service >/dev/null 2>&1 || true
	else
		dew --run "${DEW_RUN:-/run/dew}" shutdown --apps >/dev/null 2>&1 || true
	fi
	dewd teardown >/dev/null 2>&1 || true
fi
END
cat >"$tree/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
if [ "$1" = purge ]; then
	# dew trust has added the CA. Its key is deleted now.
	for ca in /usr/local/share/ca-certificates/dew-*.crt; do
		if cmp -s "$ca" /var/lib/dew/keys/router-ca.pem; then
			rm "$ca"
			update-ca-certificates --fresh >/dev/null 2>&1 || true
			# If no CA is left, update-ca-certificates does not write the bundle.
			bundle=/etc/ssl/certs/ca-certificates.crt
			if [ -e "$bundle" ]; then
				awk 'FNR == NR { ca = ca $0 "\n"; next }
					/-----BEGIN / { block = "" }
					{ block = block $0 "\n" }
					/-----END / { if (block != ca) printf "%s", block; block = "" }
					END { printf "%s", block }' /var/lib/dew/keys/router-ca.pem "$bundle" >"$bundle.dew" &&
					cat "$bundle.dew" >"$bundle"
				rm -f "$bundle.dew"
			fi
		fi
	done
	rm -rf /var/lib/dew /etc/default/dew
elif [ "$1" = remove ] && [ -e /var/lib/dew ]; then
	echo 'dew: apps, logs and databases are kept in /var/lib/dew; apt purge dew deletes them'
fi
END
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm" "$tree/DEBIAN/postrm"

package=bin/dew_${number}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
echo "$package"
