// Package builtin is the broker that is always there: databases that are real
// servers, each in a container of its own.
//
//	Broker.Instance ─▶ record "create" ─▶ worker ─▶ stack, address, folders, runtime.Server
//	                                          └──▶ waits until the administrator can log in, makes the database
//	Broker.Binding  ─▶ a session in the container: a user of its own, with rights on the one database
//
//	<dir>/<guid>/store      /data in the container: owned by the app user, 0700
//	<dir>/<guid>/conf       /conf in the container, read-only: script and configuration
//	<dir>/<guid>/snapshots  copies of store/data, out of the server's reach
//
// The supervisor keeps the servers alive, over restarts of the daemon and of the
// machine. A record says what is under way, so that the next daemon goes on with
// it; every step may be done again. Passwords are made from a secret of the
// instance and the guid of the binding: the same binding always gets the same
// one, and none is kept. Servers are only given what they compare passwords with.
package builtin
