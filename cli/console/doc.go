// Package console is where the commands of dew write and ask: data to stdout,
// everything else to stderr.
//
//	console.go  output, tables, questions     secret.go   passwords, choices
//	progress.go what a command shows while it waits
//	list.go     lists as tables and as JSON   lines.go    log lines
//	shown.go    text that is safe to print    text.go     sizes, counts, times
//	failure.go  errors with an exit status    timeout.go  time limits
package console
