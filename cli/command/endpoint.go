package command

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

// The org and the space that a daemon creates at its first start.
const (
	firstOrg   = "local"
	firstSpace = "dev"
)

// Endpoint is the daemon that a command uses: a URL with a session, or the socket of
// this machine.
type Endpoint struct {
	ConfigFile ConfigFile
	URL        string // empty: the socket
	Run        string
	Session    Session  // login at URL
	EnvLogin   EnvLogin // if not complete, Session is the one of dew login
	Target     Target
}

// Endpoint returns the daemon that the flags, the environment and the config file name.
func (g *Set) Endpoint() (Endpoint, error) {
	d := Endpoint{Run: g.Run}
	if abs, err := filepath.Abs(g.Run); err == nil {
		d.Run = abs
	}
	var err error
	if d.ConfigFile, err = FindConfigFile(); err != nil {
		return d, err
	}
	c, err := d.ConfigFile.Load()
	if err != nil {
		return d, err
	}
	switch {
	case g.API != "":
		if d.URL, err = APIURL(g.API); err != nil {
			return d, err
		}
	case !g.Local:
		d.URL = c.API
	}
	if d.URL == "" {
		d.Target = c.Local[d.Run]
		return d, nil
	}
	d.Target = c.Sessions[d.URL].Target
	d.EnvLogin = readEnvLogin(c.Sessions[d.URL])
	d.Session = d.EnvLogin.session(c, d.URL)
	return d, nil
}

// APIURL turns the argument of a user into a URL. A host without a scheme is https, as
// for cf.
func APIURL(typed string) (string, error) {
	if !strings.Contains(typed, "://") {
		typed = "https://" + typed
	}
	u, err := url.Parse(typed)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", console.UsageError("%q is not the URL of a daemon, such as http://127.0.0.1:8484", typed)
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}

// Client returns a client of the endpoint that uses its session and its target.
func (g *Set) Client(d Endpoint) (*client.Client, error) {
	o, err := g.options(d)
	if err != nil {
		return nil, err
	}
	if d.URL != "" {
		if o.Tokens, err = g.Tokens(d); err != nil {
			return nil, err
		}
	}
	h := &spaceFinder{target: d.Target}
	o.Space = h.space
	h.api, err = client.New(o)
	return h.api, err
}

// Tokens returns the tokens for requests to the endpoint's URL.
func (g *Set) Tokens(d Endpoint) (*sessionTokens, error) {
	plain, err := g.AnonymousClient(d)
	if err != nil {
		return nil, err
	}
	return &sessionTokens{url: d.URL, config: d.ConfigFile, envLogin: d.EnvLogin, login: plain.Users().Login, now: d.Session}, nil
}

// AnonymousClient returns a client that sends no token.
func (g *Set) AnonymousClient(d Endpoint) (*client.Client, error) {
	o, err := g.options(d)
	if err != nil {
		return nil, err
	}
	return client.New(o)
}

func (g *Set) options(d Endpoint) (client.Options, error) {
	trust, err := d.Session.TLS()
	if err != nil {
		return client.Options{}, err
	}
	return client.Options{Run: d.Run, URL: d.URL, TLS: trust, UserAgent: "dew/" + g.Version, Warn: g.Out.Warn}, nil
}

// spaceFinder looks up the targeted space once, when it is first needed.
type spaceFinder struct {
	api    *client.Client
	target Target

	mu    sync.Mutex
	found string // guarded by mu
}

func (h *spaceFinder) space(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.found != "" {
		return h.found, nil
	}
	p, err := ResolveTarget(ctx, h.api, h.target)
	if err != nil {
		return "", err
	}
	if p.SpaceGUID == "" {
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("no space of org %s is targeted", p.Org), Advice: "Target one: dew target -s SPACE (dew spaces lists them)"}
	}
	h.found = p.SpaceGUID
	return h.found, nil
}

// SaveTarget stores the target of the endpoint.
func (d Endpoint) SaveTarget(ctx context.Context, p Target) error {
	return d.ConfigFile.Update(ctx, func(c *Config) error {
		if d.URL == "" {
			c.Local[d.Run] = p
			return nil
		}
		s := c.Sessions[d.URL]
		s.Target = p
		c.Sessions[d.URL] = s
		return nil
	})
}

// ForgetTarget removes the target if gone reports that it was deleted.
func (d Endpoint) ForgetTarget(ctx context.Context, gone func(Target) bool) error {
	if !gone(d.Target) {
		return nil
	}
	return d.SaveTarget(ctx, Target{})
}

// SaveSession stores the session and makes its daemon the one that later
// commands use.
func (d Endpoint) SaveSession(ctx context.Context) error {
	return d.ConfigFile.Update(ctx, func(c *Config) error {
		c.API = d.URL
		c.Sessions[d.URL] = d.Session
		return nil
	})
}
