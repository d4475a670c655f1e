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
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
)

// Why a caller is refused. Which response that is, package rest knows.
var (
	errUnknownRequest   = errors.New("unknown request")
	errNotAuthenticated = errors.New("not authenticated")
	errInvalidToken     = errors.New("invalid token")
	errNotAuthorized    = errors.New("not authorized")
	errOrgSuspended     = errors.New("the organization is suspended")
)

// need is what a caller wants to do with a resource. The roles in its space and org decide.
type need int

const (
	// public needs no token.
	public need = iota + 1
	// authenticated needs a token and no role: the handler shows what the caller can see.
	authenticated
	// toRead needs any role in the space, or the org manager.
	toRead
	// toReadRoute is the same for routes, which org auditors can see as well.
	toReadRoute
	// toReadQuota is for a space quota, which the org manager can see.
	toReadQuota
	// toDownload is for the files of a droplet: everyone who can read except supporters.
	toDownload
	// toReadEnv is for an app's environment variables, which auditors and managers must not see.
	toReadEnv
	// toReadSecrets is for credentials, including those of bound services.
	toReadSecrets
	// toSupport is for keeping apps running: start, stop, scale, map routes.
	toSupport
	// toDevelop is for changing apps.
	toDevelop
	// toManage is for changing the space, or the org where there is no space.
	toManage
	// toManageOrg is for changing the org, even at one of its spaces.
	toManageOrg
	// toReadAll is for global readers.
	toReadAll
	// toAdminister is for administrators only.
	toAdminister
)

// reads tells whether global readers have the need.
func (n need) reads() bool { return n >= toRead && n <= toDownload }

// changes tells whether a suspended org refuses the need.
func (n need) changes() bool { return n >= toSupport && n <= toManageOrg }

// spaceRoles have a need in their space, orgRoles in their org and in all its spaces.
// No role gives a need that is not listed.
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

// Control decides what callers may see and do.
type Control struct {
	Registry *registry.Registry
	Roles    *auth.Roles
	Packages *droplet.Packages
	Builds   *droplet.Builds
	Droplets *droplet.Droplets
	Services *marketplace.Marketplace
}

// place is where a resource belongs: a space with its org, or an org.
type place struct{ org, space string }

// permissions are what a caller can see and do.
type permissions struct {
	all     bool // everything: administrators and global readers
	admin   bool // may do everything
	secrets bool // may read all secrets

	orgs          map[string]bool            // that have a role of the user, or a space with one
	memberOrgs    map[string]bool            // those of them where the user works, and is no mere member
	roles         map[string][]auth.RoleType // by the guid of an org or a space
	orgOf         map[string]string          // of every space
	suspendedOrgs map[string]bool            // orgs that are suspended
}

// space tells whether the space and what is in it is seen.
func (perms permissions) space(guid string) bool {
	return perms.all || perms.may(toRead, guid)
}

// org tells whether the org is seen. That says nothing of its spaces.
func (perms permissions) org(guid string) bool { return perms.all || perms.orgs[guid] }

// may tells whether the need is granted in a space.
func (perms permissions) may(n need, space string) bool {
	return perms.allows(n, place{org: perms.orgOf[space], space: space})
}

// mayInOrg tells whether the need is granted in an org.
func (perms permissions) mayInOrg(n need, org string) bool { return perms.allows(n, place{org: org}) }

func (perms permissions) allows(n need, p place) bool {
	switch {
	case perms.admin, n == public, n == authenticated:
		return true
	case n == toReadAll:
		return perms.all
	case n.reads() && perms.all, (n == toReadEnv || n == toReadSecrets) && perms.secrets:
		return true
	case n == toRead && p.space == "":
		return perms.org(p.org)
	}
	has := func(guid string, one []auth.RoleType) bool {
		return guid != "" && slices.ContainsFunc(perms.roles[guid], func(r auth.RoleType) bool { return slices.Contains(one, r) })
	}
	return has(p.space, spaceRoles[n]) || has(p.org, orgRoles[n])
}

// suspended tells whether the org refuses changes of whoever this is.
func (perms permissions) suspended(org string) bool { return !perms.admin && perms.suspendedOrgs[org] }

// caller is who makes a request; it stands in the request's context.
type caller struct {
	who         auth.Principal
	err         error // why nobody is let in: no token, or a bad one
	permissions *permissions
	local       bool
}

type callerKey struct{}

func withCaller(ctx context.Context, v *caller) context.Context {
	return context.WithValue(ctx, callerKey{}, v)
}

func callerOf(ctx context.Context) *caller {
	if v, ok := ctx.Value(callerKey{}).(*caller); ok {
		return v
	}
	return &caller{err: errNotAuthenticated}
}

// principal is who makes the request. Behind the guard there is always one,
// except at what is open to everybody.
func principal(ctx context.Context) auth.Principal { return callerOf(ctx).who }

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

// permissions is what the request's principal sees. It is read once in a request.
func (c *Control) permissions(ctx context.Context) (permissions, error) {
	v := callerOf(ctx)
	if v.permissions != nil {
		return *v.permissions, nil
	}
	perms, err := c.permissionsOf(v.who)
	if err != nil {
		return perms, err
	}
	v.permissions = &perms
	return perms, nil
}

func (c *Control) permissionsOf(who auth.Principal) (permissions, error) {
	perms := permissions{
		all: who.GlobalReader(), admin: who.Admin(), secrets: who.Admin() || who.Has(auth.ScopeAdminReadOnly),
		orgs: map[string]bool{}, memberOrgs: map[string]bool{}, roles: map[string][]auth.RoleType{}, orgOf: map[string]string{}, suspendedOrgs: map[string]bool{},
	}
	if perms.admin || who.ID == "" {
		return perms, nil
	}
	spaces, err := c.Registry.Spaces()
	if err != nil {
		return perms, err
	}
	for _, sp := range spaces {
		perms.orgOf[sp.GUID] = sp.Org
	}
	orgs, err := c.Registry.Orgs()
	if err != nil {
		return perms, err
	}
	for _, o := range orgs {
		perms.suspendedOrgs[o.GUID] = o.Suspended
	}
	roles, err := c.Roles.OfUser(who.ID)
	if err != nil {
		return perms, fmt.Errorf("cannot read the roles of %s: %w", who.ID, err)
	}
	for _, role := range roles {
		perms.add(role)
	}
	return perms, nil
}

// add notes a role. One in a place that is gone gives nothing.
func (perms permissions) add(role auth.Role) {
	at := role.Org + role.Space // exactly one of them
	perms.roles[at] = append(perms.roles[at], role.Type)
	org := role.Org
	if role.Space != "" {
		org = perms.orgOf[role.Space]
	}
	if org == "" {
		return
	}
	perms.orgs[org] = true
	if role.Space != "" || role.Type == auth.OrgManager || role.Type == auth.OrgAuditor {
		perms.memberOrgs[org] = true
	}
}

// require asks for a need in a space that no path named. What the principal does
// not see is app.ErrNotFound, so that a handler can say which noun it looked for.
func (c *Control) require(ctx context.Context, n need, spaceGUID string) error {
	sp, err := c.Registry.Space(spaceGUID)
	if err != nil {
		return err
	}
	return c.authorize(ctx, n, place{org: sp.Org, space: sp.GUID}, toRead)
}

// requireOrg wants the principal to manage an org that no path named.
func (c *Control) requireOrg(ctx context.Context, orgGUID string) error {
	o, err := c.Registry.Org(orgGUID)
	if err != nil {
		return err
	}
	return c.authorize(ctx, toManageOrg, place{org: o.GUID}, toRead)
}

// authorize asks for a need in a place. To whom the other need is not granted there, it
// does not exist.
func (c *Control) authorize(ctx context.Context, n need, p place, shown need) error {
	perms, err := c.permissions(ctx)
	if err != nil {
		return err
	}
	switch {
	case !perms.allows(shown, p):
		return fmt.Errorf("%s%s is not seen: %w", p.org, p.space, app.ErrNotFound)
	case !perms.allows(n, p):
		return errNotAuthorized
	case n.changes() && perms.suspended(p.org):
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
	if e.Needs == public {
		return nil
	}
	v := callerOf(r.Context())
	switch {
	case e.Open && errors.Is(v.err, errNotAuthenticated):
		return s.browse()
	case v.err != nil:
		return v.err
	case e.Local && !v.local:
		return errUnknownRequest
	case !scoped(v.who, r.Method):
		return errNotAuthorized
	case e.Needs == authenticated || v.who.Admin():
		return nil // the handler knows what there is
	}
	if e.Resource.find == nil {
		return s.authorizeGlobally(r, e)
	}
	p, err := e.Resource.find(s.access, r.PathValue("guid"))
	if err != nil {
		return missing(e.Resource.name, err)
	}
	err = s.access.authorize(r.Context(), e.Needs, p, e.Resource.shownTo())
	if (invisible(err) || errors.Is(err, errNotAuthorized) && e.Resource.shared) && e.Resource.readers != nil {
		err = s.authorizeReader(r, e, err)
	}
	return missing(e.Resource.name, err)
}

// authorizeGlobally asks for a need that is no matter of a place. What is named and not seen
// is not there; only then it is refused.
func (s *Server) authorizeGlobally(r *http.Request, e Endpoint) error {
	perms, err := s.access.permissions(r.Context())
	if err != nil || perms.allows(e.Needs, place{}) {
		return err
	}
	if e.Hidden {
		return errUnknownRequest
	}
	if e.Resource.look != nil {
		if err := e.Resource.look(r); err != nil {
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

// authorizeReader lets those read who see the thing in another space. To do more, they
// must see where it belongs.
func (s *Server) authorizeReader(r *http.Request, e Endpoint, refused error) error {
	spaces, err := e.Resource.readers(s.access, r.PathValue("guid"))
	if err != nil {
		return err
	}
	perms, err := s.access.permissions(r.Context())
	if err != nil || !slices.ContainsFunc(spaces, perms.space) {
		return errors.Join(refused, err)
	}
	may := func(space string) bool { return s.access.require(r.Context(), e.Needs, space) == nil }
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

// resource is what the {guid} of a path names, and how its place is found.
type resource struct {
	name string // as answers call it
	find func(c *Control, guid string) (place, error)
	// readers are the guids of further spaces whose people may read it; nil: none.
	readers func(c *Control, guid string) ([]string, error)
	shared  bool // and may do there what they may do at home

	shown need // who does not have it is told that there is nothing; zero: toRead

	// look fails for who does not see the thing, where find is nil.
	look func(r *http.Request) error
}

// shownTo is the need of those who see it at its place.
func (n resource) shownTo() need {
	if n.shown == 0 {
		return toRead
	}
	return n.shown
}

// The resources that paths name.
var (
	anOrg = resource{name: "Organization", find: func(c *Control, guid string) (place, error) {
		o, err := c.Registry.Org(guid)
		return place{org: o.GUID}, err
	}}
	aSpace = resource{name: "Space", find: (*Control).spacePlace}
	anApp  = resource{name: "App", find: (*Control).appPlace}

	aProcess = resource{name: "Process", find: func(c *Control, guid string) (place, error) {
		process, _, _ := app.SplitGeneration(guid)
		p, err := c.Registry.Process(process)
		return c.inApp(p.App, err)
	}}
	aSidecar = resource{name: "Sidecar", find: func(c *Control, guid string) (place, error) {
		sc, err := c.Registry.Sidecar(guid)
		return c.inApp(sc.App, err)
	}}
	aPackage = resource{name: "Package", find: func(c *Control, guid string) (place, error) {
		p, err := c.Packages.Get(guid)
		return c.inApp(p.App, err)
	}}
	aBuild = resource{name: "Build", find: func(c *Control, guid string) (place, error) {
		b, err := c.Builds.Get(guid)
		return c.inApp(b.App, err)
	}}
	aDroplet = resource{name: "Droplet", find: func(c *Control, guid string) (place, error) {
		d, err := c.Droplets.Get(guid)
		return c.inApp(d.App, err)
	}}
	aRole = resource{name: "Role", find: func(c *Control, guid string) (place, error) {
		role, err := c.Roles.Get(guid)
		if err != nil || role.Space == "" {
			return place{org: role.Org}, err
		}
		return c.spacePlace(role.Space)
	}}
	aRoute = resource{name: "Route", find: (*Control).routePlace, readers: routeReaders, shown: toReadRoute}
	// aSharedRoute is a route for what those that it is shared with may do, too.
	aSharedRoute = resource{name: "Route", find: (*Control).routePlace, readers: routeReaders, shared: true, shown: toReadRoute}
)

func (c *Control) routePlace(guid string) (place, error) {
	rt, err := c.Registry.Route(guid)
	if err != nil {
		return place{}, err
	}
	return c.spacePlace(rt.Space)
}

func (c *Control) spacePlace(guid string) (place, error) {
	sp, err := c.Registry.Space(guid)
	return place{org: sp.Org, space: sp.GUID}, err
}

func (c *Control) appPlace(guid string) (place, error) {
	a, err := c.Registry.App(guid)
	if err != nil {
		return place{}, err
	}
	return c.spacePlace(a.Space)
}

// inApp is the place of something that belongs to an app. What is left of an app
// that is gone belongs to nobody.
func (c *Control) inApp(guid string, err error) (place, error) {
	if err != nil {
		return place{}, err
	}
	return c.appPlace(guid)
}

// invisible tells the errors that mean "there is nothing for you".
func invisible(err error) bool {
	return errors.Is(err, app.ErrNotFound) || errors.Is(err, droplet.ErrNotFound) || errors.Is(err, auth.ErrNotFound) // those of services are app's
}
