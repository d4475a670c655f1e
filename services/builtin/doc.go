// Package builtin is the built-in service broker. It provides databases that are real
// servers, each in its own container.
//
//	Broker.Instance ─▶ record "create" ─▶ worker ─▶ stack, address, folders, runtime.Server
//	                                          └──▶ waits until the administrator can log in, creates the database
//	Broker.Binding  ─▶ a session in the container: a new user with rights on the one database
//
//	<dir>/<guid>/store      /data in the container: owned by the app user, 0700
//	<dir>/<guid>/conf       /conf in the container, read-only: script and configuration
//	<dir>/<guid>/snapshots  copies of store/data, not accessible to the server
//
// The supervisor keeps the servers running, across restarts of the daemon and of the
// machine. A record stores the operation in progress, so that the next daemon can
// continue it; every step can be repeated. Passwords are derived from a secret of the
// instance and the guid of the binding. The same binding always gets the same password,
// and no password is stored. Servers receive only the hashes that they compare
// passwords with.
package builtin
