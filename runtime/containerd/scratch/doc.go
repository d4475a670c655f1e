// Package scratch mounts snapshots for a short time, to write files into them. A later
// daemon finds the mounts of a killed one and removes them.
package scratch
