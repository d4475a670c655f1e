// Package session opens sessions in the container of an instance: an exec for a client,
// next to one of the instance's processes.
package session
