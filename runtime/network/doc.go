// Package network makes the network of instances: a bridge, a network namespace with
// a veth for each instance, and the firewall between them and the host. It also dials
// from inside those namespaces.
package network
