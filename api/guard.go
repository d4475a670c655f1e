package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/services"
)

// need is what somebody wants to do at a place. The roles there decide.
type need int

const (
	// toLook is for what everybody may know: no token is asked for.
	toLook need = iota + 1
	// toEnter asks for a token and no role: the handler shows what its bearer sees.
	toEnter
	// toRead asks for any role in the space, or for the org's manager.
	toRead
	// toReadRoute is the same for routes, which the auditors of the org see, too.
	toReadRoute
	// toReadQuota is for a quota of spaces, which the manager of the org made.
	toReadQuota
	// toDownload is for the files of a droplet: for all who read but supporters.
	toDownload
	// toReadEnv is for an app's variables, which auditors and managers must not see.
	toReadEnv
	// toReadSecrets is for the credentials of what is bound, too.
	toReadSecrets
	// toSupport is to keep what there is running: start, stop, scale, map routes.
	toSupport
	// toDevelop is to change what runs.
	toDevelop
	// toManage is to change the space itself, or the org where there is no space.
	toManage
	// toManageOrg is to change the org, also at a space of it.
	toManageOrg
	// toReadAll is for those who see everything.
	toReadAll
	// toAdminister is for administrators alone.
	toAdminister
)

// reads tells the needs of those who see everything.
func (n need) reads() bool { return n >= toRead && n <= toDownload }

// changes tells the needs that a suspended org refuses.
func (n need) changes() bool { return n >= toSupport && n <= toManageOrg }

// spaceRoles may do it in their space, orgRoles in their org and in all spaces of
// it. A need that is not here is no matter of roles.
var (
	spaceRoles = map[need][]auth.RoleType{
		toRead:        {auth.SpaceDeveloper, auth.SpaceManager, auth.SpaceAuditor, auth.SpaceSupporter},
		toReadRoute:   {auth.SpaceDeveloper, auth.SpaceManager, auth.SpaceAuditor, auth.SpaceSupporter},
		toDownload:    {auth.SpaceDeveloper, auth.SpaceManager, auth.SpaceAuditor},
		toReadEnv:     {auth.SpaceDeveloper, auth.SpaceSupporter},
		toReadSecrets: {auth.SpaceDeveloper},
		toSupport:     {auth.SpaceDeveloper, auth.SpaceSupporter},
		toDevelop:     {auth.SpaceDeveloper},
		toManage:      {auth.SpaceManager},
	}
	orgRoles = map[need][]auth.RoleType{
		toRead:      {auth.OrgManager},
		toReadRoute: {auth.OrgManager, auth.OrgAuditor},
		toReadQuota: {auth.OrgManager},
		toDownload:  {auth.OrgManager},
		toManage:    {auth.OrgManager},
		toManageOrg: {auth.OrgManager},
	}
)

// place is where something lives: a space with its org, or an org alone.
type place struct{ org, space string }

// sight is what somebody sees, and may do there.
type sight struct {
	all     bool // everything: administrators and global readers
	admin   bool // may do everything
	secrets bool // may read all secrets

	orgs   map[string]bool            // that have a role of the user, or a space with one
	inside map[string]bool            // those of them where the user works, and is no mere member
	roles  map[string][]auth.RoleType // by the guid of an org or a space
	orgOf  map[string]string          // of every space
	frozen map[string]bool            // orgs that are suspended
}

// space tells whether the space and what is in it is seen.
func (see sight) space(guid string) bool {
	return see.all || see.may(toRead, guid)
}

// org tells whether the org is seen. That says nothing of its spaces.
func (see sight) org(guid string) bool { return see.all || see.orgs[guid] }

// may tells whether the need is granted in a space.
func (see sight) may(n need, space string) bool {
	return see.allows(n, place{org: see.orgOf[space], space: space})
}

// mayInOrg tells whether the need is granted in an org.
func (see sight) mayInOrg(n need, org string) bool { return see.allows(n, place{org: org}) }

func (see sight) allows(n need, p place) bool {
	switch {
	case see.admin, n == toLook, n == toEnter:
		return true
	case n == toReadAll:
		return see.all
	case n.reads() && see.all, (n == toReadEnv || n == toReadSecrets) && see.secrets:
		return true
	case n == toRead && p.space == "":
		return see.org(p.org)
	}
	has := func(guid string, one []auth.RoleType) bool {
		return guid != "" && slices.ContainsFunc(see.roles[guid], func(r auth.RoleType) bool { return slices.Contains(one, r) })
	}
	return has(p.space, spaceRoles[n]) || has(p.org, orgRoles[n])
}

// suspended tells whether the org refuses changes of whoever this is.
func (see sight) suspended(org string) bool { return !see.admin && see.frozen[org] }

// visitor is who makes a request; it stands in the request's context.
type visitor struct {
	who   auth.Principal
	err   error // why nobody is let in: no token, or a bad one
	seen  *sight
	local bool
}

type visitorKey struct{}

func withVisitor(ctx context.Context, v *visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

func visitorOf(ctx context.Context) *visitor {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		return v
	}
	return &visitor{err: errNotAuthenticated}
}

// principal is who makes the request. Behind the guard there is always one,
// except at what is open to everybody.
func principal(ctx context.Context) auth.Principal { return visitorOf(ctx).who }

// actorKey is where the one stands whom a job acts for.
type actorKey struct{}

// actingFor lets a job act for who asked for it.
func actingFor(ctx context.Context, by app.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, by)
}

// actor is who makes the request, or whom a job acts for, as events name it.
func actor(ctx context.Context) app.Actor {
	if by, ok := ctx.Value(actorKey{}).(app.Actor); ok && by.GUID != "" {
		return by
	}
	p := principal(ctx)
	if p.ID == "" {
		return app.Actor{GUID: "unknown", Type: "user", Name: "unknown"}
	}
	return Actor(p)
}

// Actor is how events name somebody.
func Actor(p auth.Principal) app.Actor {
	if p.IsUser {
		return app.Actor{GUID: p.ID, Type: "user", Name: p.Name}
	}
	return app.Actor{GUID: p.ID, Type: "client", Name: p.Name}
}

// origin is who chooses the URLs that a request has in it.
func origin(ctx context.Context) services.Origin {
	if principal(ctx).Admin() {
		return services.ByAdmin
	}
	return services.ByUser
}

// sight is what the request's principal sees. It is read once in a request.
func (s *Server) sight(ctx context.Context) (sight, error) {
	v := visitorOf(ctx)
	if v.seen != nil {
		return *v.seen, nil
	}
	see, err := s.sightOf(v.who)
	if err != nil {
		return see, err
	}
	v.seen = &see
	return see, nil
}

func (s *Server) sightOf(who auth.Principal) (sight, error) {
	see := sight{
		all: who.GlobalReader(), admin: who.Admin(), secrets: who.Admin() || who.Has(auth.ScopeAdminReadOnly),
		orgs: map[string]bool{}, inside: map[string]bool{}, roles: map[string][]auth.RoleType{}, orgOf: map[string]string{}, frozen: map[string]bool{},
	}
	if see.admin || who.ID == "" {
		return see, nil
	}
	spaces, err := s.c.Registry.Spaces()
	if err != nil {
		return see, err
	}
	for _, sp := range spaces {
		see.orgOf[sp.GUID] = sp.Org
	}
	orgs, err := s.c.Registry.Orgs()
	if err != nil {
		return see, err
	}
	for _, o := range orgs {
		see.frozen[o.GUID] = o.Suspended
	}
	roles, err := s.c.Roles.OfUser(who.ID)
	if err != nil {
		return see, fmt.Errorf("cannot read the roles of %s: %w", who.ID, err)
	}
	for _, role := range roles {
		see.add(role)
	}
	return see, nil
}

// add notes a role. One in a place that is gone gives nothing.
func (see sight) add(role auth.Role) {
	at := role.Org + role.Space // exactly one of them
	see.roles[at] = append(see.roles[at], role.Type)
	org := role.Org
	if role.Space != "" {
		org = see.orgOf[role.Space]
	}
	if org == "" {
		return
	}
	see.orgs[org] = true
	if role.Space != "" || role.Type == auth.OrgManager || role.Type == auth.OrgAuditor {
		see.inside[org] = true
	}
}

// demand asks for a need in a space that no path named. What the principal does
// not see is app.ErrNotFound, so that a handler can say which noun it looked for.
func (s *Server) demand(ctx context.Context, n need, spaceGUID string) error {
	sp, err := s.c.Registry.Space(spaceGUID)
	if err != nil {
		return err
	}
	return s.ask(ctx, n, place{org: sp.Org, space: sp.GUID}, toRead)
}

// demandOrg wants the principal to manage an org that no path named.
func (s *Server) demandOrg(ctx context.Context, orgGUID string) error {
	o, err := s.c.Registry.Org(orgGUID)
	if err != nil {
		return err
	}
	return s.ask(ctx, toManageOrg, place{org: o.GUID}, toRead)
}

// ask asks for a need in a place. To whom the other need is not granted there, it
// does not exist.
func (s *Server) ask(ctx context.Context, n need, p place, shown need) error {
	see, err := s.sight(ctx)
	if err != nil {
		return err
	}
	switch {
	case !see.allows(shown, p):
		return fmt.Errorf("%s%s is not seen: %w", p.org, p.space, app.ErrNotFound)
	case !see.allows(n, p):
		return errNotAuthorized
	case n.changes() && see.suspended(p.org):
		return errOrgSuspended
	}
	return nil
}

// guard lets a request through to next when its right is granted. It answers 401
// to nobody, 403 to those who may not, and 404 to those who must not know.
func (s *Server) guard(e Endpoint, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.admit(r, e)
		if err == nil {
			err = readable(r)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(withShape(r.Context(), e.Shape)))
	})
}

// readable refuses a query that cannot be read whole: what was left out of it might
// have changed what it asks for. Text that is not UTF-8 would be shown as another.
func readable(r *http.Request) error {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return badQuery("%v", err)
	}
	if !utf8.ValidString(r.URL.Path) {
		return badRequest("The path is not valid UTF-8")
	}
	if err := inbound.URL(r.URL); err != nil {
		return badQuery("%v", err)
	}
	return nil
}

func (s *Server) admit(r *http.Request, e Endpoint) error {
	if e.Needs == toLook {
		return nil
	}
	v := visitorOf(r.Context())
	switch {
	case e.Open && errors.Is(v.err, errNotAuthenticated):
		return s.browse()
	case v.err != nil:
		return v.err
	case e.Local && !v.local:
		return errUnknownRequest
	case !scoped(v.who, r.Method):
		return errNotAuthorized
	case e.Needs == toEnter || v.who.Admin():
		return nil // the handler knows what there is
	}
	if e.Resource.find == nil {
		return s.askAll(r, e)
	}
	p, err := e.Resource.find(s, r.PathValue("guid"))
	if err != nil {
		return missing(e.Resource.noun, err)
	}
	err = s.ask(r.Context(), e.Needs, p, e.Resource.shownTo())
	if (invisible(err) || errors.Is(err, errNotAuthorized) && e.Resource.shared) && e.Resource.readers != nil {
		err = s.askReader(r, e, err)
	}
	return missing(e.Resource.noun, err)
}

// askAll asks for a need that is no matter of a place. What is named and not seen
// is not there; only then it is refused.
func (s *Server) askAll(r *http.Request, e Endpoint) error {
	see, err := s.sight(r.Context())
	if err != nil || see.allows(e.Needs, place{}) {
		return err
	}
	if e.Hidden {
		return errUnknownRequest
	}
	if e.Resource.look != nil {
		if err := e.Resource.look(s, r); err != nil {
			return err
		}
	}
	return errNotAuthorized
}

// browse lets those in who come without a token, unless the marketplace is hidden
// from them.
func (s *Server) browse() error {
	f, err := s.c.Registry.Flag(app.FlagHideMarket)
	if err == nil && f.Enabled {
		err = errNotAuthenticated
	}
	return err
}

// askReader lets those read who see the thing in another space. To do more, they
// must see where it belongs.
func (s *Server) askReader(r *http.Request, e Endpoint, refused error) error {
	spaces, err := e.Resource.readers(s, r.PathValue("guid"))
	if err != nil {
		return err
	}
	see, err := s.sight(r.Context())
	if err != nil || !slices.ContainsFunc(spaces, see.space) {
		return errors.Join(refused, err)
	}
	may := func(space string) bool { return s.demand(r.Context(), e.Needs, space) == nil }
	if e.Needs == e.Resource.shownTo() || e.Resource.shared && slices.ContainsFunc(spaces, may) {
		return nil
	}
	return errNotAuthorized
}

// scoped tells whether the token is good for the method at all.
func scoped(p auth.Principal, method string) bool {
	if method == http.MethodGet || method == http.MethodHead {
		return p.GlobalReader() || p.Has(auth.ScopeRead)
	}
	return p.Admin() || p.Has(auth.ScopeWrite)
}

// noun is what the {guid} of a path names, and how its place is found.
type noun struct {
	noun string // as answers call it
	find func(s *Server, guid string) (place, error)
	// readers are the guids of further spaces whose people may read it; nil: none.
	readers func(s *Server, guid string) ([]string, error)
	shared  bool // and may do there what they may do at home

	shown need // who does not have it is told that there is nothing; zero: toRead

	// look fails for who does not see the thing, where find is nil.
	look func(s *Server, r *http.Request) error
}

// shownTo is the need of those who see it at its place.
func (n noun) shownTo() need {
	if n.shown == 0 {
		return toRead
	}
	return n.shown
}

// The nouns of paths.
var (
	anOrg = noun{noun: "Organization", find: func(s *Server, guid string) (place, error) {
		o, err := s.c.Registry.Org(guid)
		return place{org: o.GUID}, err
	}}
	aSpace = noun{noun: "Space", find: (*Server).spacePlace}
	anApp  = noun{noun: "App", find: (*Server).appPlace}

	aProcess = noun{noun: "Process", find: func(s *Server, guid string) (place, error) {
		process, _, _ := app.SplitGeneration(guid)
		p, err := s.c.Registry.Process(process)
		return s.inApp(p.App, err)
	}}
	aSidecar = noun{noun: "Sidecar", find: func(s *Server, guid string) (place, error) {
		sc, err := s.c.Registry.Sidecar(guid)
		return s.inApp(sc.App, err)
	}}
	aPackage = noun{noun: "Package", find: func(s *Server, guid string) (place, error) {
		p, err := s.c.Packages.Get(guid)
		return s.inApp(p.App, err)
	}}
	aBuild = noun{noun: "Build", find: func(s *Server, guid string) (place, error) {
		b, err := s.c.Builds.Get(guid)
		return s.inApp(b.App, err)
	}}
	aDroplet = noun{noun: "Droplet", find: func(s *Server, guid string) (place, error) {
		d, err := s.c.Shelf.Get(guid)
		return s.inApp(d.App, err)
	}}
	aRole = noun{noun: "Role", find: func(s *Server, guid string) (place, error) {
		role, err := s.c.Roles.Get(guid)
		if err != nil || role.Space == "" {
			return place{org: role.Org}, err
		}
		return s.spacePlace(role.Space)
	}}
	aRoute = noun{noun: "Route", find: (*Server).routePlace, readers: routeReaders, shown: toReadRoute}
	// aSharedRoute is a route for what those that it is shared with may do, too.
	aSharedRoute = noun{noun: "Route", find: (*Server).routePlace, readers: routeReaders, shared: true, shown: toReadRoute}

	// What has no place: who looks does not see it, or it is not there.
	aUser = noun{noun: "User", look: func(s *Server, r *http.Request) error {
		_, err := s.userOf(r)
		return err
	}}
	aGroup = noun{noun: nounSecurityGroup, look: func(s *Server, r *http.Request) error {
		_, _, err := s.groupOf(r)
		return err
	}}
	aBuildpack = noun{noun: "Buildpack", look: func(s *Server, r *http.Request) error {
		_, err := s.buildpackOf(r)
		return err
	}}
	aStack = noun{noun: "Stack", look: func(s *Server, r *http.Request) error {
		_, err := s.stackOf(r)
		return err
	}}
)

func (s *Server) routePlace(guid string) (place, error) {
	rt, err := s.c.Registry.Route(guid)
	if err != nil {
		return place{}, err
	}
	return s.spacePlace(rt.Space)
}

func (s *Server) spacePlace(guid string) (place, error) {
	sp, err := s.c.Registry.Space(guid)
	return place{org: sp.Org, space: sp.GUID}, err
}

func (s *Server) appPlace(guid string) (place, error) {
	a, err := s.c.Registry.App(guid)
	if err != nil {
		return place{}, err
	}
	return s.spacePlace(a.Space)
}

// inApp is the place of something that belongs to an app. What is left of an app
// that is gone belongs to nobody.
func (s *Server) inApp(guid string, err error) (place, error) {
	if err != nil {
		return place{}, err
	}
	return s.appPlace(guid)
}

// invisible tells the errors that mean "there is nothing for you".
func invisible(err error) bool {
	return errors.Is(err, app.ErrNotFound) || errors.Is(err, droplet.ErrNotFound) || errors.Is(err, auth.ErrNotFound) // those of services are app's
}
