# The beginning of every engine's script. It runs as the app user, without any
# capability, in a container that holds one server:
#
#   /data  its own: data/ (the server's), run/ (its socket), tmp/
#   /conf  what dew wrote for it, read-only
#
#   server.sh run      keeps the server, and makes its data first where there is none
#   server.sh client   the administrator's client, which reads its input
#   server.sh shell    the same for people
#   server.sh freeze   stands the server still until its own input ends
set -eu
umask 077
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# What the app user's session or the host's packages set must not matter.
unset PGHOST PGPORT PGUSER PGDATABASE MYSQL_HOST MYSQL_HOME REDISCLI_AUTH 2>/dev/null || :

# fail says why there will be no server, to the log and to dew.
fail() {
	printf '%s\n' "$*" >&2
	printf '%s\n' "$*" >/data/failed 2>/dev/null || :
	exit 1
}

# alone makes sure that nobody else has the data, for as long as this process or
# one that it began lives.
alone() {
	rm -f /data/failed
	mkdir -p /data/run /data/tmp
	exec 9>/data/lock
	if command -v flock >/dev/null; then
		flock -w 60 9 || fail 'an earlier server still has the data'
	fi
	rm -rf /data/tmp/*
	echo $$ >/data/run/main.pid
}

# complaint prints what a log says went wrong, in one line.
complaint() {
	grep -iE 'no space left|fatal|error|cannot|could not' "$1" | head -n 3 | tr '\n' ' '
}

# fresh tells whether the server has no data yet. Data that was there and is gone
# is never made anew: nobody would notice the loss.
fresh() {
	[ ! -d /data/data ] || return 1
	[ ! -e /data/made ] || fail 'the data is gone: restore a snapshot, or delete the service instance and make it again'
	rm -rf /data/data.new
}

# settled makes new data the server's own, whole or not at all.
settled() {
	sync -f /data/data.new 2>/dev/null || sync
	mv /data/data.new /data/data
	: >/data/made
	sync /data 2>/dev/null || sync
}

# parent_and_state prints the parent and the state of a process.
parent_and_state() {
	sed 's/^.*) \(.\) \([0-9]*\) .*/\2 \1/' "/proc/$1/stat" 2>/dev/null || :
}

# family lists the server's processes, parents first.
family() {
	set -- "$(cat /data/run/main.pid)"
	all=$1
	while [ $# -gt 0 ]; do
		next=
		for p in /proc/[0-9]*; do
			p=${p#/proc/}
			of=$(parent_and_state "$p")
			for parent; do
				[ "${of% *}" != "$parent" ] || next="$next $p"
			done
		done
		all="$all$next"
		# shellcheck disable=SC2086 # a list of numbers
		set -- $next
	done
	echo "$all"
}

thaw() {
	for p in $stopped; do
		kill -CONT "$p" 2>/dev/null || :
	done
}

# freeze stands all processes of the server still, says so, and lets them go on
# when its input ends, or nobody has come back for a long time.
freeze() {
	stopped=
	trap thaw EXIT
	trap 'exit 1' HUP INT TERM
	for round in 1 2 3 4 5; do # a process may have begun another one meanwhile
		now=$(family)
		[ "$now" != "$stopped" ] || break
		stopped=$now
		for p in $stopped; do
			kill -STOP "$p" 2>/dev/null || :
		done
	done
	tries=0
	for p in $stopped; do
		while :; do
			of=$(parent_and_state "$p")
			case ${of#* } in
			'' | T | t | Z | X) break ;;
			esac
			tries=$((tries + 1))
			[ $tries -lt 600 ] || { echo "process $p does not stand still (round $round)" >&2; exit 1; }
			sleep 0.05
		done
	done
	echo frozen
	timeout 600 cat >/dev/null || :
}
