# first prints the path of the first program that is installed.
first() {
	for p; do
		if command -v "$p" >/dev/null; then
			command -v "$p"
			return
		fi
	done
	fail "Redis is not installed: $1 was not found (Debian: apt install redis-server)"
}

run() {
	alone
	server=$(first redis-server valkey-server)
	if fresh; then
		mkdir /data/data.new
		cat /conf/users.acl >/data/data.new/users.acl || fail 'cannot write the file of the users'
		settled
	fi
	exec "$server" /conf/redis.conf
}

client() {
	cli=$(first redis-cli valkey-cli)
	read -r REDISCLI_AUTH </conf/admin
	export REDISCLI_AUTH
	exec "$cli" -s /data/run/redis.sock --user dew-admin --no-auth-warning "$@"
}

shell() { client "$@"; }

case ${1-} in
run) run ;;
client) shift; client "$@" ;;
shell) shift; shell "$@" ;;
freeze | size | copy | keep | discard) "$@" ;;
*) fail "usage: server.sh run|client|shell|freeze" ;;
esac
