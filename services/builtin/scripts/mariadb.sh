# first prints the path of the first program that is installed.
first() {
	for p; do
		if command -v "$p" >/dev/null; then
			command -v "$p"
			return
		fi
	done
	fail "MariaDB is not installed: $1 was not found (Debian: apt install mariadb-server)"
}

run() {
	alone
	server=$(first mariadbd mysqld)
	if fresh; then
		mkdir /data/data.new
		install=$(first mariadb-install-db mysql_install_db)
		"$install" --no-defaults --datadir=/data/data.new --tmpdir=/data/tmp \
			--auth-root-authentication-method=normal --skip-test-db --skip-name-resolve \
			--innodb-buffer-pool-size=32M --innodb-use-native-aio=0 >/data/tmp/init.log 2>&1 ||
			fail "mariadb-install-db failed: $(complaint /data/tmp/init.log)"
		settled
	fi
	exec "$server" --defaults-file=/conf/my.cnf
}

client() {
	cli=$(first mariadb mysql)
	exec "$cli" --no-defaults --protocol=socket --socket=/data/run/mariadb.sock --user=root "$@"
}

shell() { client "$@"; }

case ${1-} in
run) run ;;
client) shift; client "$@" ;;
shell) shift; shell "$@" ;;
freeze | size | copy | keep | discard) "$@" ;;
*) fail "usage: server.sh run|client|shell|freeze" ;;
esac
