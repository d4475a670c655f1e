// Package services has the commands of dew about services: the marketplace,
// service instances, bindings, keys, snapshots and brokers.
package services
