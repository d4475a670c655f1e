// Package runtimetest has an engine in memory for unit tests. It also has the test
// suite that this engine and the real one must pass.
//
// Both understand the same few shell commands, so that one suite can test both:
//
//	sleep N      runs until it is stopped
//	exit N       exits with N
//	kill -9 $$   exits with 137
//	trap '' TERM ignores SIGTERM
//	echo text    prints a line
//	./anything   does not exist: exits with 127
//
// joined by "; ".
package runtimetest
