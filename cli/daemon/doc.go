// Package daemon has the dew commands for the daemon itself: status, credentials,
// shutdown, doctor, the mail inbox and plain API requests.
package daemon
