// Package daemon has the commands of dew about the daemon: status, credentials,
// doctor, mails and plain requests.
package daemon
