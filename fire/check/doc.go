// Package check has the invariants of the fault suite. Each is a row: a name and a
// function that compares the notes of the load with what dewd stores and shows.
package check
