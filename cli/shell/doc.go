// Package shell has the dew commands that run something in a container: ssh, cp, run and
// tasks.
package shell
