// Package next creates the next instance of a slot: at once, or before its processes can
// run, while the instance before it ends or still runs.
package next
