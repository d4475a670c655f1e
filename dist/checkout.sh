#!/bin/sh
# checkout.sh starts and stops the dewd of a checkout (make run, make stop).
#
#   usage: checkout.sh start|stop <root> <run>
set -eu

verb=$1 root=$2 run=$3
dewd=$(dirname "$0")/../bin/dewd
log=$(dirname "$root")/dewd.log

# The pid of the daemon, if it lives: it holds the lock of its pid file, whose
# number alone somebody else could have by now.
living() {
	pid=$(cat "$run/dewd.pid" 2>/dev/null) && [ -n "$pid" ] || return 1
	! flock --nonblock --shared "$run/dewd.pid" true
}

# Waits until the command says yes; gives up after about so many seconds.
within() {
	tenths=$(($1 * 10))
	shift
	until "$@"; do
		tenths=$((tenths - 1))
		[ $tenths -gt 0 ] || return 1
		sleep 0.1
	done
}

# The socket is there from the moment dewd is ready.
decided() { [ -S "$run/dew.sock" ] || ! kill -0 "$started" 2>/dev/null; }
gone() { ! living; }

start() {
	if living; then
		echo "dewd runs already: pid $pid, socket $run/dew.sock (make stop ends it)"
		return
	fi
	mkdir -p "$root"
	rm -f "$run/dew.sock"
	setsid "$dewd" --root "$root" --run "$run" >"$log" 2>&1 </dev/null &
	started=$!
	if ! within 60 decided || ! living; then
		tail -n 3 "$log" >&2
		echo "dewd did not start; its log is $log" >&2
		exit 1
	fi
	"$dewd" doctor --root "$root" --run "$run" || true
	echo "dewd runs: pid $pid, socket $run/dew.sock, log $log (make stop ends it)"
}

stop() {
	if living; then
		kill -TERM "$pid"
		if ! within 30 gone; then
			echo "dewd (pid $pid) did not end within 30 s; its log is $log" >&2
			exit 1
		fi
	fi
	if [ ! -e "$root/lock" ] && [ ! -e "$run" ]; then
		return
	fi
	if [ ! -x "$dewd" ]; then
		echo "cannot tear down $root: bin/dewd is not there (make build)" >&2
		exit 1
	fi
	"$dewd" teardown --root "$root" --run "$run"
}

"$verb"
