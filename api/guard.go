package api

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/dewrun/dew/api/access"
	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/platform"
)

// guard passes a request to next if the caller has the endpoint's need. It responds 401
// to callers without a token, 403 to callers without permission, and 404 to callers who
// must not know that the resource exists.
func (s *Server) guard(e rest.Endpoint, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.admit(r, e)
		if err == nil {
			err = readable(r)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(rest.WithShape(r.Context(), e.Shape)))
	})
}

// readable refuses a query that cannot be parsed completely, because a lost part could
// change its meaning. It also refuses text that is not UTF-8, which would be shown as
// different text.
func readable(r *http.Request) error {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return rest.BadQuery("%v", err)
	}
	if !utf8.ValidString(r.URL.Path) {
		return rest.BadRequest("The path is not valid UTF-8")
	}
	if err := inbound.URL(r.URL); err != nil {
		return rest.BadQuery("%v", err)
	}
	return nil
}

func (s *Server) admit(r *http.Request, e rest.Endpoint) error {
	if e.Needs == access.Public {
		return nil
	}
	v := access.CallerOf(r.Context())
	switch {
	case e.Open && errors.Is(v.Err, access.ErrNotAuthenticated):
		return s.browse()
	case v.Err != nil:
		return v.Err
	case e.Local && !v.Local:
		return access.ErrUnknownRequest
	case !access.HasScope(v.Who, r.Method) && (e.Scope == "" || !v.Who.Has(e.Scope)):
		return access.ErrNotAuthorized
	case e.Needs == access.Authenticated || v.Who.Admin():
		return nil // the handler decides what the caller can see
	}
	if e.Resource.Find == nil {
		return s.authorizeGlobally(r, e)
	}
	p, err := e.Resource.Find(s.access, r.PathValue("guid"))
	if err != nil {
		return rest.Missing(e.Resource.Name, err)
	}
	err = s.access.Authorize(r.Context(), e.Needs, p, e.Resource.ShownTo())
	if (platform.IsNotFound(err) || errors.Is(err, access.ErrNotAuthorized) && e.Resource.Shared) && e.Resource.Readers != nil {
		err = s.authorizeReader(r, e, err)
	}
	return rest.Missing(e.Resource.Name, err)
}

// authorizeGlobally checks a need that does not depend on a space or org. A named
// resource that the caller cannot see is not found. Only then is the need refused.
func (s *Server) authorizeGlobally(r *http.Request, e rest.Endpoint) error {
	perms, err := s.access.Permissions(r.Context())
	if err != nil || perms.Allows(e.Needs, access.Place{}) {
		return err
	}
	if e.Hidden {
		return access.ErrUnknownRequest
	}
	if e.Resource.Look != nil {
		if err := e.Resource.Look(r); err != nil {
			return err
		}
	}
	return access.ErrNotAuthorized
}

// browse allows callers without a token, unless the marketplace is hidden from them.
func (s *Server) browse() error {
	f, err := s.c.Registry.Flag(app.FlagHideMarket)
	if err == nil && f.Enabled {
		err = access.ErrNotAuthenticated
	}
	return err
}

// authorizeReader allows reading by callers who can see the resource in another space.
// For other needs, they must see the space that it belongs to.
func (s *Server) authorizeReader(r *http.Request, e rest.Endpoint, refused error) error {
	spaces, err := e.Resource.Readers(s.access, r.PathValue("guid"))
	if err != nil {
		return err
	}
	perms, err := s.access.Permissions(r.Context())
	if err != nil || !slices.ContainsFunc(spaces, perms.SeesSpace) {
		return errors.Join(refused, err)
	}
	isAllowed := func(space string) bool { return s.access.Require(r.Context(), e.Needs, space) == nil }
	if e.Needs == e.Resource.ShownTo() || e.Resource.Shared && slices.ContainsFunc(spaces, isAllowed) {
		return nil
	}
	return access.ErrNotAuthorized
}
