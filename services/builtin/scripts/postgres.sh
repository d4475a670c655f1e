# programs sets bin to the programs of the version that created the data, or of the
# newest version.
programs() {
	want=
	[ ! -f /data/data/PG_VERSION ] || read -r want </data/data/PG_VERSION
	bin=
	for d in $(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -Vr) /usr/local/bin /usr/bin; do
		[ -x "$d/postgres" ] || continue
		has=$("$d/postgres" -V | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
		if [ "${want:-$has}" = "$has" ]; then
			bin=$d
			return
		fi
	done
	[ -z "$want" ] || fail "the data requires PostgreSQL $want, which is not installed; install it again (Debian: apt install postgresql-$want)"
	fail 'PostgreSQL is not installed (Debian: apt install postgresql)'
}

run() {
	alone
	programs
	if fresh; then
		"$bin/initdb" -D /data/data.new -U postgres -E UTF8 --locale=C.UTF-8 -A reject >/data/tmp/init.log 2>&1 ||
			fail "initdb failed: $(complaint /data/tmp/init.log)"
		settled
	fi
	# No other server has the data, so a PID in this file is from an earlier container.
	rm -f /data/data/postmaster.pid
	"$bin/postgres" -D /data/data -c config_file=/conf/postgresql.conf &
	pid=$!
	# With SIGTERM the server would wait until all clients disconnect.
	trap 'kill -INT "$pid" 2>/dev/null || :' TERM INT
	code=0
	wait "$pid" || code=$?
	while kill -0 "$pid" 2>/dev/null; do
		code=0
		wait "$pid" || code=$?
	done
	exit $code
}

client() {
	programs
	exec "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h /data/run -U postgres "$@"
}

shell() {
	programs
	exec "$bin/psql" -h /data/run -U postgres "$@"
}

case ${1-} in
run) run ;;
client) shift; client "$@" ;;
shell) shift; shell "$@" ;;
freeze | size | copy | keep | discard) "$@" ;;
*) fail "usage: server.sh run|client|shell|freeze" ;;
esac
