// Package names has the names of dew's resources on a machine: those of a daemon, and
// those of an instance's container. It also has the labels of a container, which hold
// all data that the next daemon needs about the instance.
package names
