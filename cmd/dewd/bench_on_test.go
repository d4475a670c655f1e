//go:build bench

package main

// benching builds dewd without the race detector, because it is measured.
const benching = true
