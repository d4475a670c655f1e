// Package address hands out the IP addresses of instances, tasks, builds and servers, and
// stores who has which.
package address
