// Package cftest keeps what the stock cf client sends and what it reads of the
// answers, as files that both a recorder and a replay understand.
//
//	cf ─▶ proxy ─▶ dewd        Tape: raw exchanges ─▶ Recording, ids and times as placeholders
//	Recording ─▶ Server        Bindings: placeholders ─▶ what this server gives, and back
//
// A placeholder with a number ($app1) stands for one value, the same one in all
// recordings of a run. One without ($time, $number, $instance) stands for any.
package cftest
