// Package dns has the files with which an instance resolves names, hosts and
// resolv.conf, and resolves a name as a program in the instance would.
package dns
