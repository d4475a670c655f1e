// Package services has the dew commands for services: the marketplace, service
// instances, service bindings, service keys, snapshots and service brokers. Each
// command parses its arguments, calls the API and prints the result.
package services
