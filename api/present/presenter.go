// Package present finds the resources that requests name and shows them, for all groups of
// handlers.
package present

import (
	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
)

// Presenter has what finding and showing needs.
type Presenter struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform

	// PortTrouble says why the port of a TCP route cannot be opened; empty: it can, or
	// nobody wants it. It may be nil.
	PortTrouble func(port int) string
}
