// Package daemon answers requests about the daemon: its status, events, jobs, mails and metrics. The rows of its
// endpoints stand beside the handlers, one file for each resource.
package daemon

import (
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/runtime"
)

// Handlers has what the handlers of all resources share. Each resource has a type of its own around it.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter

	Self
	Mailing
}

// Endpoints are the rows of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		eventHandlers{h}.endpoints(),
		inboxHandlers{h}.endpoints(),
		infoHandlers{h}.endpoints(),
		jobHandlers{h}.endpoints(),
		statusHandlers{h}.endpoints(),
		metricsHandlers{h}.endpoints(),
		rootHandlers{h}.endpoints(),
		usageEventHandlers{h}.endpoints(),
	)
}

// Self is what the daemon tells of itself, and how it is stopped.
type Self struct {
	Version string // of the program
	// About is the part of GET /dew/v1/status that does not change.
	About v3.Status
	// SSH is the SSH server of instances; nil: there is none.
	SSH *platform.SSHEndpoint
	// RefusedURLs are the stored URLs that a user who is not an administrator could not
	// set now; nil: not known.
	RefusedURLs func() ([]v3.RefusedURL, error)
	// SetAside lists what the daemon cannot repair now; nil: nothing.
	SetAside func() []v3.SetAside
	// Crashed lists the crashed instances whose files are kept. It may be nil.
	Crashed func() []runtime.CrashFiles
	// Metrics holds what the daemon measures.
	Metrics *Metrics
	// Shutdown asks the daemon to exit, and to stop the apps first if apps is true. It
	// returns at once. Nil: the request is refused.
	Shutdown func(apps bool)
}

// Mailing is the notification service and the mails that dewd sends itself.
type Mailing struct {
	// Notify answers below /notify, with the prefix stripped; nil: nobody does.
	Notify http.Handler
	// Mails is the built-in inbox; nil: mails go elsewhere.
	Mails *Mails
	// CrashMails sends mails about crashes; nil: not available.
	CrashMails *notify.Crashes
}
