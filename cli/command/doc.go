// Package command has the parts that all dew commands share: their description, the
// daemon they use, the login, and the errors they return.
//
//	set.go        a command from its description    help.go     usage lines and errors in flags
//	endpoint.go   the daemon to use                 targets.go  the org and the space
//	config.go     the config file                   session.go  tokens, and their renewal
//	env_login.go  DEW_USERNAME and DEW_PASSWORD     exit.go     exit statuses, advice
//	find.go       resources by name                 read.go     values of flags
//	flags.go      flags that many commands have     errors.go   kinds of errors
package command
