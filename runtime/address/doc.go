// Package address assigns the IP addresses of instances, tasks, builds and servers. It
// stores which of them has which address.
package address
