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

// Socket is the name of the daemon's socket below its folder of run-time files.
const Socket = "dew.sock"

const (
	dialTimeout = 6 * time.Second
	callTimeout = time.Minute // of everything but uploads and streams
	maxAnswer   = 64 << 20
	allPages    = "5000" // the largest page there is
)

// Options say where the daemon is, and who asks.
type Options struct {
	Run       string       // folder of the daemon's run-time files: its socket is asked
	URL       string       // instead of Run: the listener
	Tokens    Tokens       // sign the requests; nil: nothing does
	TLS       *tls.Config  // for an https listener; nil: the system's authorities
	Space     Space        // where apps are looked for; nil: everywhere
	UserAgent string       // who asks
	Warn      func(string) // hears what the daemon warns of; may be nil
}

// Space gives the guid of the space that apps, processes and routes are listed
// of. It is asked when it is needed, and each time.
type Space func(ctx context.Context) (string, error)

// Client asks one daemon; its calls are grouped by subject. It is safe for
// concurrent use.
type Client struct{ *transport }

// New gives a client; nothing is asked yet.
func New(o Options) (*Client, error) {
	t, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	return &Client{t}, nil
}

// Apps are the calls about apps: their settings, environment and deployments.
func (c *Client) Apps() Apps { return Apps{c.transport} }

// Processes are the calls about what apps run: processes, instances and tasks.
func (c *Client) Processes() Processes { return Processes{c.transport} }

// Bits are the calls about what apps run from: packages, builds, droplets,
// buildpacks and stacks.
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

// Logs are the calls about the lines that apps and services print.
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

// Select gives a client whose list of the resources at path has only those with
// matching labels. An empty selector matches everything.
func (c *Client) Select(path, selector string) *Client {
	if selector == "" {
		return c
	}
	t := *c.transport
	t.selectors = map[string]string{path: selector}
	return &Client{&t}
}

// Address is the socket or address that is asked.
func (c *Client) Address() string { return c.address }

// SpaceGUID gives the guid of the client's space; empty if it has none.
func (c *Client) SpaceGUID(ctx context.Context) (string, error) { return c.spaceGUID(ctx) }

// Error is an answer that is not a success.
type Error struct {
	Status int
	Code   int
	Title  string
	Detail string // of all errors in the answer, one per line
}

// Error gives the daemon's own sentence.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("the daemon answered %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Detail
}

// NotFound tells whether err is the daemon's word that something is not there. A
// call that it does not know is another matter.
func NotFound(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.Status == http.StatusNotFound && e.Detail != v3.DetailUnknownRequest
}

// Unreachable is a daemon that cannot be asked.
type Unreachable struct {
	Address string
	Err     error
}

// Error names the address that could not be reached.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("cannot reach dewd at %s: %v", u.Address, u.Err)
}

// Unwrap gives the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// Request is a request in full; Path may have a query. It is signed with a token
// unless its header has an Authorization or it is to be Anonymous.
type Request struct {
	Method    string
	Path      string
	Header    http.Header
	Body      io.Reader
	Anonymous bool
}

// Send sends a request and gives the answer whatever its status. The caller
// closes its body. A token that the daemon refuses is renewed, and the request
// sent again, once; not so an upload, which cannot be read twice.
func (c *Client) Send(ctx context.Context, r Request) (*http.Response, error) {
	return c.send(ctx, r)
}
