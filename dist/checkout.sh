#!/bin/sh
# checkout.sh starts and stops the dewd of a checkout (make run, make stop).
#
#   usage: checkout.sh start|stop <root> <run>
set -eu

verb=$1 root=$2 run=$3
here=$(cd "$(dirname "$0")/.." && pwd)
dewd=$here/bin/dewd
log=$(dirname "$root")/dewd.log
sample=$here/examples/config-sidecar

unset DEW_RUN
# A user who is logged in to another dewd must still use the dewd of this checkout.
dew() { "$here/bin/dew" --run "$run" "$@"; }

# Prints the next step.
step() { printf '\n==> %s\n' "$*"; }

# Sets pid to the PID of the daemon, if it runs. A running daemon holds the lock of its
# PID file; the PID alone is not enough, because another process can have it by now.
living() {
	pid=$(cat "$run/dewd.pid" 2>/dev/null) && [ -n "$pid" ] || return 1
	! flock --nonblock --shared "$run/dewd.pid" true
}

# Waits until the command succeeds, at most about this number of seconds.
within() {
	tenths=$(($1 * 10))
	shift
	until "$@"; do
		tenths=$((tenths - 1))
		[ $tenths -gt 0 ] || return 1
		sleep 0.1
	done
}

# The socket exists when dewd is ready.
decided() { [ -S "$run/dew.sock" ] || ! kill -0 "$started" 2>/dev/null; }
gone() { ! living; }

# Prints an address for dewd: the preferred one, or any free one if another program has
# its port.
address() {
	port=$(printf '%04X' "$1")
	if cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { print $2 }' | grep -q ":$port\$"; then
		echo "port $1 is taken: dewd gets another one" >&2
		echo 127.0.0.1:0
	else
		echo "127.0.0.1:$1"
	fi
}

start() {
	if living; then
		echo "dewd runs already: pid $pid, socket $run/dew.sock (make stop ends it)"
		return
	fi
	step "starting dewd: state in $root, log in $log"
	mkdir -p "$root"
	rm -f "$run/dew.sock"
	setsid "$dewd" --root "$root" --run "$run" --listen "$(address 8484)" --router "$(address 8080)" \
		--ssh "$(address 2222)" --listen-tls "$(address 8485)" --router-tls "$(address 8443)" >"$log" 2>&1 </dev/null &
	started=$!
	if ! within 60 decided || ! living; then
		tail -n 3 "$log" >&2
		echo "dewd did not start; its log is $log" >&2
		exit 1
	fi
	echo "pid $pid, socket $run/dew.sock"
	step "what the machine has (dewd doctor)"
	"$dewd" doctor --root "$root" --run "$run" || true
}

# Shows the steps of a user: push the sample with its sidecar, send a request, read its log.
show() {
	step "building the sample app and its sidecar, examples/config-sidecar"
	(cd "$sample" && CGO_ENABLED=0 go build -trimpath -o build/ ./app ./config-server)
	step "pushing them"
	echo "\$ dew push"
	(cd "$sample" && dew push)
	router=$(dew status --json | sed -n 's/.*"router": *"\(http:[^"]*\)".*/\1/p')
	step "asking the app, which asks its sidecar"
	echo "\$ curl $router/config -H 'Host: config-sidecar.dew.localhost'"
	curl --silent --show-error --fail --max-time 10 --header 'Host: config-sidecar.dew.localhost' "$router/config"
	step "what both printed"
	echo "\$ dew logs config-sidecar --recent"
	dew logs config-sidecar --recent
	step "the app runs until make stop; go on with"
	echo "  export DEW_RUN=$run PATH=$here/bin:\$PATH"
	echo "  dew kill config-sidecar --sidecar config-server --wait    # kill the sidecar"
	echo "  dew why config-sidecar                                    # see what crashed and why"
	echo "  dew app config-sidecar                                    # see it running again"
}

stop() {
	if living; then
		dew shutdown --apps
		if ! within 60 gone; then
			echo "dewd (pid $pid) did not end within 60 s; its log is $log" >&2
			exit 1
		fi
	elif [ ! -e "$run" ]; then
		echo "dewd is not running"
	fi
	if [ ! -e "$run" ]; then
		return
	fi
	if [ ! -x "$dewd" ]; then
		echo "cannot tear down $root: bin/dewd is not there (make build)" >&2
		exit 1
	fi
	"$dewd" teardown --root "$root" --run "$run"
}

case $verb in
start) start && show ;;
stop) stop ;;
*)
	echo "checkout.sh: start or stop, not $verb" >&2
	exit 2
	;;
esac
