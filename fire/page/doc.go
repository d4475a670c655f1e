// Package page adds the reports of the fault suite up and writes the figures of
// docs/reliability.md.
package page
