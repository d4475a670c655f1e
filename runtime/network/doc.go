// Package network creates the network of instances. It has a bridge, a network
// namespace with a veth for each instance, and the firewall between them and the host.
// It also opens connections from inside those namespaces.
package network
