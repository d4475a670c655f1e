// Package daemon answers requests about the daemon: its status, events, jobs, mails and
// metrics. Each resource has one file with its endpoints and their handlers.
package daemon

import (
	"context"
	"net/http"
	"slices"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/present"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/console"
	"github.com/dewrun/dew/notify"
	"github.com/dewrun/dew/notify/crashmail"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/runtime"
)

// Handlers holds the fields that the handlers of all resources share. Each resource has
// its own type that embeds it.
type Handlers struct {
	Access   *access.Control
	Links    rest.Links
	Platform *platform.Platform
	Present  *present.Presenter

	Self
	Mailing

	doctor doctorResults
}

// Endpoints returns the endpoints of all resources.
func (h *Handlers) Endpoints() []rest.Endpoint {
	return slices.Concat(
		consoleHandlers{h}.endpoints(),
		doctorHandlers{h}.endpoints(),
		eventHandlers{h}.endpoints(),
		inboxHandlers{h}.endpoints(),
		infoHandlers{h}.endpoints(),
		jobHandlers{h}.endpoints(),
		mailHandlers{h}.endpoints(),
		statusHandlers{h}.endpoints(),
		metricsHandlers{h}.endpoints(),
		rootHandlers{h}.endpoints(),
		usageEventHandlers{h}.endpoints(),
	)
}

// Self holds the daemon's information about itself, and the function that stops it.
type Self struct {
	Version string // version of the program
	// About is the part of GET /dew/v1/status that does not change.
	About v3.Status
	// SSH is the SSH server of instances; nil if there is none.
	SSH *platform.SSHEndpoint
	// RefusedURLs returns the stored URLs that a user who is not an administrator could
	// not set now; nil if unknown.
	RefusedURLs func() ([]v3.RefusedURL, error)
	// SetAside lists the resources that the daemon cannot repair now; nil if there are
	// none.
	SetAside func() []v3.SetAside
	// Warnings returns what is wrong with the addresses of the daemon; nil if unknown.
	Warnings func() ([]string, error)
	// PolicyNotice reports, once, that network policies are not enforced because an older
	// dewd made the root. It can be nil.
	PolicyNotice func() (bool, error)
	// Doctor runs the checks of dewd doctor for this daemon; nil if not available.
	Doctor func(ctx context.Context) []v3.Finding
	// Crashed lists the crashed instances whose files are stored. It can be nil.
	Crashed func() []runtime.CrashFiles
	// Console is the web console; nil if there is none.
	Console *console.Console
	// Metrics holds the daemon's measurements.
	Metrics *Metrics
	// Shutdown requests the daemon to exit, and to stop the apps first if apps is true.
	// It returns at once. If it is nil, the request is refused.
	Shutdown func(apps bool)
}

// Mailing is the notification service and the mails that dewd sends itself.
type Mailing struct {
	// Notify answers requests under /notify, with the prefix stripped; nil if the
	// notification service is disabled.
	Notify http.Handler
	// Mails is the built-in inbox; nil if mails go to another server.
	Mails *Mails
	// Queue is the queue of mails; nil if not available.
	Queue *MailQueue
	// Preview renders a template of mails; nil if not available.
	Preview func(notify.Preview) (delivery.Mail, error)
	// CrashMails sends mails about crashes; nil if not available.
	CrashMails *crashmail.Crashes
}
