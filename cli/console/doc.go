// Package console is the input and output of the dew commands. Data goes to stdout;
// messages, questions and progress go to stderr.
//
//	console.go  output, tables, questions     secret.go   passwords, choices
//	progress.go progress of a command that waits
//	list.go     lists as tables and as JSON   lines.go    log lines
//	shown.go    text that is safe to print    text.go     sizes, counts, times
//	failure.go  errors with an exit status    timeout.go  time limits
package console
