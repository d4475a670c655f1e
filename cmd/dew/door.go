package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// The names of the org and the space that a daemon makes at its first start.
const (
	firstOrg   = "local"
	firstSpace = "dev"
)

// door is where a command goes: to a URL with what is remembered of it, or to
// the socket.
type door struct {
	memory memory
	url    string // empty: the socket
	run    string
	past   session // with url
	script script  // not complete: past is the session of dew login
	target place
}

// door finds out where to go.
func (g *global) door() (door, error) {
	d := door{run: g.run}
	if abs, err := filepath.Abs(g.run); err == nil {
		d.run = abs
	}
	var err error
	if d.memory, err = newMemory(); err != nil {
		return d, err
	}
	c, err := d.memory.load()
	if err != nil {
		return d, err
	}
	switch {
	case g.api != "":
		if d.url, err = apiURL(g.api); err != nil {
			return d, err
		}
	case !g.local:
		d.url = c.API
	}
	if d.url == "" {
		d.target = c.Local[d.run]
		return d, nil
	}
	d.target = c.Sessions[d.url].Target
	d.script = scriptLogin(c.Sessions[d.url])
	d.past = d.script.session(c, d.url)
	return d, nil
}

// apiURL makes what people type an address: a bare host is https, as for cf.
func apiURL(typed string) (string, error) {
	if !strings.Contains(typed, "://") {
		typed = "https://" + typed
	}
	u, err := url.Parse(typed)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", console.UsageError("%q is not the address of a daemon, such as http://127.0.0.1:8484", typed)
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}

// open gives a client that is logged in as far as it can be, and that looks for
// apps in the targeted space.
func (g *global) open(d door) (*client.Client, error) {
	o, err := g.options(d)
	if err != nil {
		return nil, err
	}
	if d.url != "" {
		if o.Tokens, err = g.tokens(d); err != nil {
			return nil, err
		}
	}
	h := &home{target: d.target}
	o.Space = h.space
	h.ask, err = client.New(o)
	return h.ask, err
}

// tokens are what requests to the door's URL are signed with.
func (g *global) tokens(d door) (*sessionTokens, error) {
	plain, err := g.anonymous(d)
	if err != nil {
		return nil, err
	}
	return &sessionTokens{url: d.url, memory: d.memory, script: d.script, login: plain.Users().Login, now: d.past}, nil
}

// anonymous gives a client that signs nothing.
func (g *global) anonymous(d door) (*client.Client, error) {
	o, err := g.options(d)
	if err != nil {
		return nil, err
	}
	return client.New(o)
}

func (g *global) options(d door) (client.Options, error) {
	trust, err := d.past.tls()
	if err != nil {
		return client.Options{}, err
	}
	return client.Options{Run: d.run, URL: d.url, TLS: trust, UserAgent: "dew/" + g.version, Warn: g.out.Warn}, nil
}

// home finds the space that a command works in, once.
type home struct {
	ask    *client.Client
	target place

	mu    sync.Mutex
	found string // guarded by mu
}

func (h *home) space(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.found != "" {
		return h.found, nil
	}
	p, err := resolve(ctx, h.ask, h.target)
	if err != nil {
		return "", err
	}
	if p.SpaceGUID == "" {
		return "", &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("no space of org %s is targeted", p.Org), Todo: "dew target -s SPACE, and dew spaces lists them"}
	}
	h.found = p.SpaceGUID
	return h.found, nil
}

// resolve is the place that is meant: what was targeted, as it is now, else the
// one that the daemon made at its first start.
func resolve(ctx context.Context, ask *client.Client, target place) (place, error) {
	if target.OrgGUID == "" {
		return firstPlace(ctx, ask)
	}
	if target.SpaceGUID == "" {
		return target, nil
	}
	s, err := ask.Orgs().Space(ctx, target.SpaceGUID)
	if isMissing(err) {
		return place{}, &console.Failure{
			Status: console.StatusFailed, Err: fmt.Errorf("the targeted space %s of org %s is gone, or is not for you any more", target.Space, target.Org),
			Todo: "dew target -o ORG -s SPACE; dew orgs and dew spaces list them",
		}
	}
	if err != nil {
		return place{}, err
	}
	target.Space = s.Name
	return target, nil
}

// effective is where commands work now, or nowhere.
func effective(ctx context.Context, w where) place {
	p, err := resolve(ctx, w.ask, w.target)
	if err != nil {
		return w.target
	}
	return p
}

func firstPlace(ctx context.Context, ask *client.Client) (place, error) {
	nowhere := &console.Failure{Status: console.StatusFailed, Err: errors.New("no org and space are targeted"), Todo: "dew target -o ORG -s SPACE; dew orgs lists the orgs"}
	o, err := ask.Orgs().ByName(ctx, firstOrg)
	if isMissing(err) {
		return place{}, nowhere
	}
	if err != nil {
		return place{}, err
	}
	s, err := ask.Orgs().SpaceByName(ctx, o.GUID, firstSpace)
	if isMissing(err) {
		return place{}, nowhere
	}
	return placeOf(o, s), err
}

func placeOf(o v3.Organization, s v3.Space) place {
	return place{OrgGUID: o.GUID, Org: o.Name, SpaceGUID: s.GUID, Space: s.Name}
}

func isMissing(err error) bool {
	m := (*client.Missing)(nil)
	return errors.As(err, &m)
}

// remember keeps the target of the door.
func (d door) remember(ctx context.Context, p place) error {
	return d.memory.update(ctx, func(c *config) error {
		if d.url == "" {
			c.Local[d.run] = p
			return nil
		}
		s := c.Sessions[d.url]
		s.Target = p
		c.Sessions[d.url] = s
		return nil
	})
}

// forget drops the target if it is what f says; something that was deleted is no
// target.
func (d door) forget(ctx context.Context, gone func(place) bool) error {
	if !gone(d.target) {
		return nil
	}
	return d.remember(ctx, place{})
}
