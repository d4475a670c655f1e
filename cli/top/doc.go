// Package top has the command dew top, a live view of all instances and processes in
// the terminal.
//
//	command.go  the command, its flags, one plain table     run.go      the terminal program, signals
//	source.go   requests to the daemon                      rows.go     rows, sorting, filtering
//	model.go    messages and keys                           columns.go  columns and cells
//	view.go     the screen                                  pane.go     text that can be scrolled
//	text.go     numbers, times and text that is safe to print
package top
