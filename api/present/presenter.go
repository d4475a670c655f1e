// Package present finds the resources that requests name and converts them for
// responses. All groups of handlers use it.
package present

import (
	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/store"
)

// Presenter finds resources and converts them for responses.
type Presenter struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform

	// PortTrouble returns why the port of a TCP route cannot be opened. It returns an
	// empty string if the port is open or not needed. It can be nil.
	PortTrouble func(port int) string

	// Memo keeps the users between requests. Nil means that every request reads them.
	Memo *store.Memo[People]
}
