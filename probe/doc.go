// Package probe has the security probes: attempts to get at something that dew protects,
// each against a real dewd with real containers. All probes share one dewd.
//
// A probe is a row in a table of the tests. The run of the tests writes what it saw into
// docs/security.md: `make probes`.
package probe
