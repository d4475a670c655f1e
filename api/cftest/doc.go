// Package cftest records the requests of the stock cf client and the parts of the
// responses that it reads. A recorder writes them to files, and a replay sends them to
// a server again.
//
//	cf ─▶ proxy ─▶ dewd        Tape: raw exchanges ─▶ Recording, ids and times as placeholders
//	Recording ─▶ Server        Bindings: placeholders ─▶ the values of this server, and back
//
// A placeholder with a number ($app1) stands for one value, the same one in all
// recordings of a run. One without ($time, $number, $instance) stands for any value.
package cftest
