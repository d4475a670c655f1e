package daemon

import (
	"errors"
	"net/http"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/console"
)

// consoleHandlers answers requests about the web console and its sessions.
type consoleHandlers struct{ *Handlers }

func (h consoleHandlers) endpoints() []rest.Endpoint {
	return []rest.Endpoint{
		{Pattern: "POST /dew/v1/console/link", Needs: access.Authenticated, Handler: h.createLink, Shape: rest.Returns[v3.ConsoleLink](201)},
		{Pattern: "GET /dew/v1/console/session", Needs: access.Authenticated, Handler: h.getInfo, Shape: rest.Returns[v3.ConsoleInfo](200)},
		{Pattern: "GET /dew/v1/console/sessions", Needs: access.Authenticated, Handler: h.listSessions, Shape: rest.Returns[v3.ConsoleSessions](200)},
		{Pattern: "DELETE /dew/v1/console/sessions/{id}", Needs: access.Authenticated, Handler: h.deleteSession, Shape: rest.Empty(204)}, // own sessions; administrators: all
	}
}

// errNoConsole is the response of a dewd without the console.
var errNoConsole = rest.Unprocessable("This dewd has no web console.")

// createLink gives the caller a link that opens the console as the caller. A caller of
// the socket gets one of the user admin, as for POST /dew/v1/token.
func (h consoleHandlers) createLink(r *http.Request) (any, error) {
	if h.Console == nil {
		return nil, errNoConsole
	}
	link, expires, err := h.Console.Link(access.Principal(r.Context()))
	if errors.Is(err, auth.ErrNotFound) {
		return nil, rest.Unprocessable("Cannot create a link: user '%s' does not exist. Log in as another user: dew login", auth.AdminName)
	}
	if err != nil {
		return nil, consoleError(err)
	}
	return rest.Answer{Status: http.StatusCreated, Body: v3.ConsoleLink{URL: link, ExpiresAt: expires}}, nil
}

func consoleError(err error) error {
	if status, e, ok := console.Refusal(err); ok {
		return &rest.Error{Status: status, Code: e.Code, Title: e.Title, Detail: e.Detail}
	}
	return err
}

func (h consoleHandlers) getInfo(r *http.Request) (any, error) {
	v := access.CallerOf(r.Context())
	out := v3.ConsoleInfo{
		User: v3.ConsoleUser{GUID: v.Who.ID, Name: v.Who.Name}, Admin: v.Who.Admin(), ReadsAll: v.Who.GlobalReader(),
		SessionID: v.Session, Version: h.Version, API: h.Links.Public.String(), Router: h.About.Router, Domain: h.About.Domain,
	}
	if h.SSH != nil {
		out.SSH = h.SSH.For(h.Links.Public.Hostname())
	}
	if v.Session == "" {
		return out, nil
	}
	s, err := h.Console.Session(v.Session)
	if err != nil {
		return nil, consoleError(err)
	}
	out.User.Origin, out.ExpiresAt = s.Origin, s.Expires()
	return out, nil
}

// listSessions lists the caller's sessions; administrators see those of all users.
func (h consoleHandlers) listSessions(r *http.Request) (any, error) {
	if h.Console == nil {
		return nil, errNoConsole
	}
	v := access.CallerOf(r.Context())
	found, err := h.Console.Sessions(sessionOwner(v))
	if err != nil {
		return nil, err
	}
	out := v3.ConsoleSessions{Resources: []v3.ConsoleSession{}}
	for _, s := range found {
		out.Resources = append(out.Resources, v3.ConsoleSession{
			ID: s.ID, User: v3.ConsoleUser{GUID: s.User, Name: s.Name, Origin: s.Origin}, CreatedAt: s.CreatedAt, LastUsedAt: s.UsedAt,
			ExpiresAt: s.Expires(), UserAgent: s.Agent, Current: s.ID == v.Session,
		})
	}
	return out, nil
}

// sessionOwner returns the user whose sessions the caller can see and end, or an empty
// string for all users.
func sessionOwner(v *access.Caller) string {
	if v.Who.Admin() {
		return ""
	}
	return v.Who.ID
}

func (h consoleHandlers) deleteSession(r *http.Request) (any, error) {
	if h.Console == nil {
		return nil, errNoConsole
	}
	err := h.Console.End(r.PathValue("id"), sessionOwner(access.CallerOf(r.Context())))
	if errors.Is(err, console.ErrEnded) {
		return nil, rest.NotFound("Console session")
	}
	if err != nil {
		return nil, err
	}
	return rest.Answer{Status: http.StatusNoContent}, nil
}
