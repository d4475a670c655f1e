// Package shell has the commands of dew that run something in a container: ssh,
// cp, run and tasks.
package shell
