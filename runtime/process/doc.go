// Package process reads what the kernel shows of processes: their state, files and
// environment in /proc, and the exact time of their exits.
package process
