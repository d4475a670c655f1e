// Package command is what the commands of dew are made of: their description,
// the daemon they ask, the login they use, and the errors they return.
//
//	set.go        a command from its description    help.go     usage lines and errors in flags
//	endpoint.go   the daemon that is asked          targets.go  the org and the space
//	config.go     the file that dew remembers in    session.go  tokens, and their renewal
//	env_login.go  DEW_USERNAME and DEW_PASSWORD     exit.go     exit statuses, advice
//	find.go       resources by name                 read.go     values of flags
//	flags.go      flags that many commands have     errors.go   kinds of answers
package command
