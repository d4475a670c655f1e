// Package signaltrace finds out who sent the signal that ended a process. It uses the
// kernel's tracepoint signal_generate: the kernel writes the signals that end processes
// to a small ring buffer, and nothing reads it until a process has died. The buffer
// also has the signals from before a restart of dewd.
package signaltrace
