// Package runfile writes run-time files, which do not survive a reboot, and opens FIFOs.
// A gate is a FIFO at which a launcher waits for a line before it runs its command.
package runfile
