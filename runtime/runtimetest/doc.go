// Package runtimetest has an engine in memory for unit tests, and the contract
// that it and the real one keep.
//
// Both understand the same few shell commands, so that one suite can ask both:
//
//	sleep N      goes on until somebody ends it
//	exit N       ends with N
//	kill -9 $$   ends with 137
//	trap '' TERM goes on after SIGTERM
//	echo text    prints a line
//	./anything   is not there: ends with 127
//
// joined by "; ".
package runtimetest
