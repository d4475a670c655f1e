#!/bin/sh
# deb.sh makes a Debian package of the checkout (make deb).
#
#   usage: deb.sh <version> <amd64|arm64>
#
# The unit is installed and not enabled: who starts a daemon should have said so.
set -eu

version=$1 arch=$2
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"
if ! command -v dpkg-deb >/dev/null; then
	echo "deb.sh: dpkg-deb is not there: only Debian and its kin have it (make tarballs works everywhere)" >&2
	exit 9
fi

# Without a tag there is a commit's hash, which must be older than every release.
number=$(printf %s "${version#v}" | tr - +)
case $number in
[0-9]*.[0-9]*) ;;
*) number=0~git+$number ;;
esac

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
make --no-print-directory build ARCH="$arch" BIN="bin/$arch"
dist/install.sh "bin/$arch" "$tree" /usr /lib/systemd/system
gzip -9n "$tree"/usr/share/man/man*/*
install -D -m 644 LICENSE "$tree/usr/share/doc/dew/copyright"
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
 command line; the stock cf CLI works with it, too.
END

# Instances outlive dewd, also its package; only a removal ends them.
cat >"$tree/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
END
cat >"$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl disable --now dew.socket dew.service >/dev/null 2>&1 || true
	dewd teardown >/dev/null 2>&1 || true
fi
END
cp "$tree/DEBIAN/postinst" "$tree/DEBIAN/postrm"
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm" "$tree/DEBIAN/postrm"

package=bin/dew_${number}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
echo "$package"
