//go:build !bench && (integration || systemd)

package main

const benching = false
