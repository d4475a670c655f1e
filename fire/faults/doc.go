// Package faults breaks the parts of a machine on which dewd depends. Each fault is a
// row: its name, how often it is chosen, and a function that injects it. A fault touches
// only processes and resources of its own world.
package faults
