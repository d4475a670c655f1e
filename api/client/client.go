package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/dewrun/dew/api/v3"
)

// Socket is the name of the daemon's socket in its folder of run-time files.
const Socket = "dew.sock"

const (
	dialTimeout = 6 * time.Second
	callTimeout = time.Minute // timeout of all calls except uploads and streams
	maxAnswer   = 64 << 20
	allPages    = "5000" // the largest page size
)

// Options say where the daemon is, and how the client authenticates.
type Options struct {
	Run       string       // folder of the daemon's run-time files, which has its socket
	URL       string       // URL of the listener, instead of Run
	Tokens    Tokens       // authenticate the requests, nil for none
	TLS       *tls.Config  // for an https listener, nil for the system's certificate authorities
	Space     Space        // space whose apps are listed, nil for all spaces
	UserAgent string       // name of the calling program
	Warn      func(string) // is called with the daemon's warnings, can be nil
}

// Space returns the guid of the space whose apps, processes and routes are listed. It
// is called each time the guid is needed.
type Space func(ctx context.Context) (string, error)

// Client calls one daemon. Its calls are grouped by subject. It is safe for concurrent
// use.
type Client struct{ *transport }

// New returns a client. It sends no request yet.
func New(o Options) (*Client, error) {
	t, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	return &Client{t}, nil
}

// Apps are the calls about apps: their settings, environment and deployments.
func (c *Client) Apps() Apps { return Apps{c.transport} }

// Processes are the calls about processes, instances and tasks of apps.
func (c *Client) Processes() Processes { return Processes{c.transport} }

// Bits are the calls about packages, builds, droplets, buildpacks and stacks.
func (c *Client) Bits() Bits { return Bits{c.transport} }

// Routes are the calls about routes and domains.
func (c *Client) Routes() Routes { return Routes{c.transport} }

// Services are the calls about service instances and their bindings.
func (c *Client) Services() Services { return Services{c.transport} }

// Market are the calls about service brokers, offerings and plans.
func (c *Client) Market() Market { return Market{c.transport} }

// Orgs are the calls about orgs and spaces.
func (c *Client) Orgs() Orgs { return Orgs{c.transport} }

// Users are the calls about users, roles, OAuth clients and tokens.
func (c *Client) Users() Users { return Users{c.transport} }

// Logs are the calls about the log lines of apps and services.
func (c *Client) Logs() Logs { return Logs{c.transport} }

// Daemon are the calls about the daemon itself and about everything it runs.
func (c *Client) Daemon() Daemon { return Daemon{c.transport} }

// The calls of a client, by subject. All of them use the client's transport.
type (
	// Apps are the calls about apps.
	Apps struct{ *transport }
	// Processes are the calls about processes, instances and tasks.
	Processes struct{ *transport }
	// Bits are the calls about packages, builds, droplets, buildpacks and stacks.
	Bits struct{ *transport }
	// Routes are the calls about routes and domains.
	Routes struct{ *transport }
	// Services are the calls about service instances and their bindings.
	Services struct{ *transport }
	// Market are the calls about service brokers, offerings and plans.
	Market struct{ *transport }
	// Orgs are the calls about orgs and spaces.
	Orgs struct{ *transport }
	// Users are the calls about users, roles, OAuth clients and tokens.
	Users struct{ *transport }
	// Logs are the calls about log lines.
	Logs struct{ *transport }
	// Daemon are the calls about the daemon.
	Daemon struct{ *transport }
)

// Select returns a client whose list of the resources at path has only those with
// matching labels. An empty selector matches everything.
func (c *Client) Select(path, selector string) *Client {
	if selector == "" {
		return c
	}
	t := *c.transport
	t.selectors = map[string]string{path: selector}
	return &Client{&t}
}

// Address is the socket or URL of the daemon.
func (c *Client) Address() string { return c.address }

// SpaceGUID returns the guid of the client's space, or an empty string if it has none.
func (c *Client) SpaceGUID(ctx context.Context) (string, error) { return c.spaceGUID(ctx) }

// Error is a response that is not a success.
type Error struct {
	Status int
	Code   int
	Title  string
	Detail string // details of all errors in the response, one per line
}

// Error returns the daemon's own message.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("dewd responded with %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Detail
}

// NotFound reports whether err says that a resource does not exist. An endpoint that
// the daemon does not have is a different error.
func NotFound(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound && e.Detail != v3.DetailUnknownRequest
}

// Unreachable is the error for a daemon that cannot be reached.
type Unreachable struct {
	Address string
	Err     error
}

// Error names the address that could not be reached.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("cannot connect to dewd at %s: %v", u.Address, u.Err)
}

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// Request is a request. Path can have a query. It is sent with a token unless its
// header has an Authorization or Anonymous is set.
type Request struct {
	Method    string
	Path      string
	Header    http.Header
	Body      io.Reader
	Anonymous bool
}

// Send sends a request and returns the response whatever its status. The caller closes
// its body. If the daemon refuses the token, Send renews it and sends the request once
// more. It does not repeat an upload, which cannot be read twice.
func (c *Client) Send(ctx context.Context, r Request) (*http.Response, error) {
	return c.send(ctx, r)
}
