# The first part of every engine's script. It runs as the app user, without any
# capability, in a container with one server:
#
#   /data  writable: data/ (of the server), run/ (its socket), tmp/; in a cluster also
#          snapshots/, and before/ during a restore
#   /conf  configuration from dew, read-only
#
#   server.sh run      runs the server, and creates its data first if there is none
#   server.sh client   runs the administrator's client, which reads its input
#   server.sh shell    runs the same client interactively
#   server.sh freeze   stops all processes of the server until the end of its input
#
# In a cluster only the server has its volume, so the script does more:
#
#   server.sh size     prints the bytes of the data, and those that are free
#   server.sh copy ID  makes the data a snapshot
#   server.sh keep ID… removes all other snapshots
#   server.sh discard  removes the data from before a restore
set -eu
umask 077
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# Variables of the user's session or the host's packages must have no effect.
unset PGHOST PGPORT PGUSER PGDATABASE MYSQL_HOST MYSQL_HOME REDISCLI_AUTH 2>/dev/null || :

# fail reports the reason to the log and to dew, and exits.
fail() {
	printf '%s\n' "$*" >&2
	printf '%s\n' "$*" >/data/failed 2>/dev/null || :
	exit 1
}

# alone locks the data against other servers, as long as this process or one of its
# children runs.
alone() {
	rm -f /data/failed
	mkdir -p /data/run /data/tmp
	exec 9>/data/lock
	if command -v flock >/dev/null; then
		flock -w 60 9 || fail 'another server still uses the data'
	fi
	rm -rf /data/tmp/*
	echo $$ >/data/run/main.pid
	replace
}

# replace replaces the data with that of a snapshot, or with that from before a restore. The
# configuration has a version and the source. Each version does it once, and can repeat it.
replace() {
	[ -s /conf/replace ] || return 0
	read -r version from </conf/replace
	[ "$(cat /data/replaced 2>/dev/null || :)" != "$version" ] || return 0
	if [ "$from" = before ]; then
		rm -rf /data/restored
		if [ -d /data/before ]; then
			rm -rf /data/trash
			[ ! -d /data/data ] || mv /data/data /data/trash
			mv /data/before /data/data
		fi
	else
		if [ ! -d /data/before ]; then
			rm -rf /data/restored
			cp -a "/data/snapshots/$from" /data/restored || fail 'cannot copy the snapshot'
			# The users are created again. Redis cannot list those that must be dropped.
			[ ! -e /conf/users.acl ] || cat /conf/users.acl >/data/restored/users.acl
			sync -f /data/restored 2>/dev/null || sync
			[ ! -d /data/data ] || mv /data/data /data/before
		fi
		[ ! -d /data/restored ] || mv /data/restored /data/data
	fi
	echo "$version" >/data/replaced
	sync -f /data 2>/dev/null || sync
	rm -rf /data/trash
}

size() {
	du -sb /data/data | cut -f1
	df -B1 --output=avail /data | tail -n1
}

copy() {
	mkdir -p /data/snapshots
	rm -rf "/data/snapshots/$1.new"
	cp -a --reflink=auto /data/data "/data/snapshots/$1.new"
	sync -f "/data/snapshots/$1.new" 2>/dev/null || sync
	mv "/data/snapshots/$1.new" "/data/snapshots/$1"
	sync -f /data/snapshots 2>/dev/null || sync
}

keep() {
	for d in /data/snapshots/*; do
		case " $* " in
		*" ${d##*/} "*) ;;
		*) rm -rf "$d" ;;
		esac
	done
}

discard() {
	rm -rf /data/trash
	[ ! -d /data/before ] || mv /data/before /data/trash
	sync -f /data 2>/dev/null || sync
	rm -rf /data/trash
}

# complaint prints the errors in a log as one line.
complaint() {
	grep -iE 'no space left|fatal|error|cannot|could not' "$1" | head -n 3 | tr '\n' ' '
}

# fresh checks whether the server has no data yet. Lost data is never created again,
# because users would not notice the loss.
fresh() {
	[ ! -d /data/data ] || return 1
	[ ! -e /data/made ] || fail 'the data is missing; restore a snapshot, or create another service instance'
	rm -rf /data/data.new
}

# settled moves new data to its final place, completely or not at all.
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

# freeze stops all processes of the server and prints that. They continue at the end of
# its input, or after 10 minutes.
freeze() {
	stopped=
	trap thaw EXIT
	trap 'exit 1' HUP INT TERM
	for round in 1 2 3 4 5; do # a process can start another one in between
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
			[ $tries -lt 600 ] || { echo "process $p did not stop (round $round)" >&2; exit 1; }
			sleep 0.05
		done
	done
	echo frozen
	timeout 600 cat >/dev/null || :
}
