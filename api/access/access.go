// Package access decides what callers can see and do: which need an endpoint has, where
// a resource belongs, and which roles have the need there. It returns an error, which
// package rest turns into a response.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/platform"
	"github.com/dewrun/dew/registry"
	"github.com/dewrun/dew/services"
	"github.com/dewrun/dew/services/marketplace"
)

// The reasons of a refusal. Package rest maps them to responses.
var (
	ErrUnknownRequest   = errors.New("unknown request")
	ErrNotAuthenticated = errors.New("not authenticated")
	ErrInvalidToken     = errors.New("invalid token")
	ErrNotAuthorized    = errors.New("not authorized")
	ErrOrgSuspended     = errors.New("the organization is suspended")
)

// Need is a permission that a request needs. The caller's roles in the resource's space
// and org decide whether it is granted.
type Need int

const (
	// Public needs no token.
	Public Need = iota + 1
	// Authenticated needs a token and no role: the handler shows only data that the
	// caller can see.
	Authenticated
	// Read needs any role in the space, or the org manager.
	Read
	// ReadRoute is the same for routes, which org auditors can see as well.
	ReadRoute
	// ReadQuota is for a space quota, which the org manager can see.
	ReadQuota
	// Download is for the files of a droplet: everyone who can read except supporters.
	Download
	// ReadEnv is for an app's environment variables, which auditors and managers must
	// not see.
	ReadEnv
	// ReadSecrets is for credentials, including those of bound services.
	ReadSecrets
	// Support is for keeping apps running: start, stop, scale, map routes.
	Support
	// Develop is for changing apps.
	Develop
	// Manage is for changing the space, or the org if there is no space.
	Manage
	// ManageOrg is for changing the org, even through one of its spaces.
	ManageOrg
	// ReadAll is for global readers.
	ReadAll
	// Administer is for administrators only.
	Administer
)

// reads reports whether global readers have the need.
func (n Need) reads() bool { return n >= Read && n <= Download }

// changes reports whether a suspended org refuses the need.
func (n Need) changes() bool { return n >= Support && n <= ManageOrg }

// spaceRoles have a need in their space, orgRoles in their org and in all its spaces.
// No role gives a need that is not listed.
var (
	spaceRoles = map[Need][]auth.RoleType{
		Read:        {auth.SpaceDeveloper, auth.SpaceManager, auth.SpaceAuditor, auth.SpaceSupporter},
		ReadRoute:   {auth.SpaceDeveloper, auth.SpaceManager, auth.SpaceAuditor, auth.SpaceSupporter},
		Download:    {auth.SpaceDeveloper, auth.SpaceManager, auth.SpaceAuditor},
		ReadEnv:     {auth.SpaceDeveloper, auth.SpaceSupporter},
		ReadSecrets: {auth.SpaceDeveloper},
		Support:     {auth.SpaceDeveloper, auth.SpaceSupporter},
		Develop:     {auth.SpaceDeveloper},
		Manage:      {auth.SpaceManager},
	}
	orgRoles = map[Need][]auth.RoleType{
		Read:      {auth.OrgManager},
		ReadRoute: {auth.OrgManager, auth.OrgAuditor},
		ReadQuota: {auth.OrgManager},
		Download:  {auth.OrgManager},
		Manage:    {auth.OrgManager},
		ManageOrg: {auth.OrgManager},
	}
)

// Control decides what callers can see and do.
type Control struct {
	Registry *registry.Registry
	Roles    *auth.Roles
	Packages *droplet.Packages
	Builds   *droplet.Builds
	Droplets *droplet.Droplets
	Services *marketplace.Marketplace
}

// Place is the org and the space that a resource belongs to.
type Place = platform.Place

// Permissions are the permissions of a caller.
type Permissions struct {
	All     bool // can see everything: administrators and global readers
	Admin   bool // can do everything
	Secrets bool // can read all secrets

	Orgs          map[string]bool            // orgs in which the user has a role, or has one in a space
	workingOrgs   map[string]bool            // those of them in which the user is org manager or auditor, or has a space role
	Roles         map[string][]auth.RoleType // by the guid of an org or a space
	OrgOf         map[string]string          // org of every space
	suspendedOrgs map[string]bool            // suspended orgs
}

// SeesSpace reports whether the caller can see the space and its contents.
func (perms Permissions) SeesSpace(guid string) bool {
	return perms.All || perms.Can(Read, guid)
}

// SeesOrg reports whether the caller can see the org. That does not include its spaces.
func (perms Permissions) SeesOrg(guid string) bool { return perms.All || perms.Orgs[guid] }

// Can reports whether the caller has the need in a space.
func (perms Permissions) Can(n Need, space string) bool {
	return perms.Allows(n, Place{Org: perms.OrgOf[space], Space: space})
}

// CanInOrg reports whether the caller has the need in an org.
func (perms Permissions) CanInOrg(n Need, org string) bool { return perms.Allows(n, Place{Org: org}) }

// Allows reports whether the caller has the need at a place.
func (perms Permissions) Allows(n Need, p Place) bool {
	switch {
	case perms.Admin, n == Public, n == Authenticated:
		return true
	case n == ReadAll:
		return perms.All
	case n.reads() && perms.All, (n == ReadEnv || n == ReadSecrets) && perms.Secrets:
		return true
	case n == Read && p.Space == "":
		return perms.SeesOrg(p.Org)
	}
	has := func(guid string, one []auth.RoleType) bool {
		return guid != "" && slices.ContainsFunc(perms.Roles[guid], func(r auth.RoleType) bool { return slices.Contains(one, r) })
	}
	return has(p.Space, spaceRoles[n]) || has(p.Org, orgRoles[n])
}

// Suspended reports whether the org is suspended and refuses changes by this caller.
func (perms Permissions) Suspended(org string) bool { return !perms.Admin && perms.suspendedOrgs[org] }

// Caller is the caller of a request. It is stored in the request's context.
type Caller struct {
	Who         auth.Principal
	Err         error // why the caller is unknown: no token, or an invalid one
	permissions *Permissions
	Local       bool
	Session     string // id of the console session whose cookie identifies the caller
}

type callerKey struct{}

// WithCaller returns the context of a request by the caller.
func WithCaller(ctx context.Context, v *Caller) context.Context {
	if v.Who.ID != "" {
		ctx = platform.ActingFor(ctx, Actor(v.Who))
	}
	return context.WithValue(ctx, callerKey{}, v)
}

// CallerOf returns the caller of the request that ctx belongs to.
func CallerOf(ctx context.Context) *Caller {
	if v, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return v
	}
	return &Caller{Err: ErrNotAuthenticated}
}

// Principal returns the principal of the request. After the authentication there is
// always one, except at public endpoints.
func Principal(ctx context.Context) auth.Principal { return CallerOf(ctx).Who }

// Actor returns a principal as audit events name it.
func Actor(p auth.Principal) app.Actor {
	if p.IsUser {
		return app.Actor{GUID: p.ID, Type: "user", Name: p.Name}
	}
	return app.Actor{GUID: p.ID, Type: "client", Name: p.Name}
}

// Origin returns who chose the URLs in a request.
func Origin(ctx context.Context) services.Origin {
	if Principal(ctx).Admin() {
		return services.ByAdmin
	}
	return services.ByUser
}

// Permissions returns the permissions of the request's principal. It reads them once
// per request.
func (c *Control) Permissions(ctx context.Context) (Permissions, error) {
	v := CallerOf(ctx)
	if v.permissions != nil {
		return *v.permissions, nil
	}
	perms, err := c.PermissionsOf(v.Who)
	if err != nil {
		return perms, err
	}
	v.permissions = &perms
	return perms, nil
}

// PermissionsOf reads the permissions of a principal.
func (c *Control) PermissionsOf(who auth.Principal) (Permissions, error) {
	perms := Permissions{
		All: who.GlobalReader(), Admin: who.Admin(), Secrets: who.Admin() || who.Has(auth.ScopeAdminReadOnly),
		Orgs: map[string]bool{}, workingOrgs: map[string]bool{}, Roles: map[string][]auth.RoleType{}, OrgOf: map[string]string{}, suspendedOrgs: map[string]bool{},
	}
	if perms.Admin || who.ID == "" {
		return perms, nil
	}
	spaces, err := c.Registry.Spaces()
	if err != nil {
		return perms, err
	}
	for _, sp := range spaces {
		perms.OrgOf[sp.GUID] = sp.Org
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

// add records a role. A role in a deleted org or space has no effect.
func (perms Permissions) add(role auth.Role) {
	at := role.Org + role.Space // exactly one of them is set
	perms.Roles[at] = append(perms.Roles[at], role.Type)
	org := role.Org
	if role.Space != "" {
		org = perms.OrgOf[role.Space]
	}
	if org == "" {
		return
	}
	perms.Orgs[org] = true
	if role.Space != "" || role.Type == auth.OrgManager || role.Type == auth.OrgAuditor {
		perms.workingOrgs[org] = true
	}
}

// Require checks a need in a space that the path does not name. If the principal cannot
// see the space, the error is app.ErrNotFound, so that a handler can name the resource.
func (c *Control) Require(ctx context.Context, n Need, spaceGUID string) error {
	sp, err := c.Registry.Space(spaceGUID)
	if err != nil {
		return err
	}
	return c.Authorize(ctx, n, Place{Org: sp.Org, Space: sp.GUID}, Read)
}

// RequireOrg checks that the principal manages an org that the path does not name.
func (c *Control) RequireOrg(ctx context.Context, orgGUID string) error {
	o, err := c.Registry.Org(orgGUID)
	if err != nil {
		return err
	}
	return c.Authorize(ctx, ManageOrg, Place{Org: o.GUID}, Read)
}

// Authorize checks a need at a place. For callers without the need shown, the resource
// does not exist.
func (c *Control) Authorize(ctx context.Context, n Need, p Place, shown Need) error {
	perms, err := c.Permissions(ctx)
	if err != nil {
		return err
	}
	switch {
	case !perms.Allows(shown, p):
		return fmt.Errorf("%s%s is not visible to the caller: %w", p.Org, p.Space, app.ErrNotFound)
	case !perms.Allows(n, p):
		return ErrNotAuthorized
	case n.changes() && perms.Suspended(p.Org):
		return ErrOrgSuspended
	}
	return nil
}

// HasScope reports whether the token's scopes allow the method.
func HasScope(p auth.Principal, method string) bool {
	if method == http.MethodGet || method == http.MethodHead {
		return p.GlobalReader() || p.Has(auth.ScopeRead)
	}
	return p.Admin() || p.Has(auth.ScopeWrite)
}

// ScopesOfLogs are the scopes of clients that read the logs of all apps.
var ScopesOfLogs = []string{"doppler.firehose", "logs.admin"}

// SeesAllLogs reports whether the principal can read the logs of all apps without naming
// them.
func SeesAllLogs(p auth.Principal) bool {
	return p.Admin() || slices.ContainsFunc(ScopesOfLogs, p.Has)
}

// Resource is the kind of resource that {guid} in a path names, and how to find its
// place.
type Resource struct {
	Name string // name in responses
	Find func(c *Control, guid string) (Place, error)
	// Readers returns the guids of other spaces whose members can read the resource.
	// Nil means none.
	Readers func(c *Control, guid string) ([]string, error)
	Shared  bool // members of Readers have the same needs there as in the space that owns it

	shown Need // for callers without this need the resource does not exist; zero means Read

	// Look returns an error if the caller cannot see the resource. It is used if Find
	// is nil.
	Look func(r *http.Request) error
}

// ShownTo returns the need of callers who can see the resource.
func (n Resource) ShownTo() Need {
	if n.shown == 0 {
		return Read
	}
	return n.shown
}

// The resources that paths name.
var (
	Org = Resource{Name: "Organization", Find: func(c *Control, guid string) (Place, error) {
		o, err := c.Registry.Org(guid)
		return Place{Org: o.GUID}, err
	}}
	Space = Resource{Name: "Space", Find: (*Control).spacePlace}
	App   = Resource{Name: "App", Find: (*Control).appPlace}

	Process = Resource{Name: "Process", Find: func(c *Control, guid string) (Place, error) {
		process, _, _ := app.SplitGeneration(guid)
		p, err := c.Registry.Process(process)
		return c.inApp(p.App, err)
	}}
	Sidecar = Resource{Name: "Sidecar", Find: func(c *Control, guid string) (Place, error) {
		sc, err := c.Registry.Sidecar(guid)
		return c.inApp(sc.App, err)
	}}
	Package = Resource{Name: "Package", Find: func(c *Control, guid string) (Place, error) {
		p, err := c.Packages.Get(guid)
		return c.inApp(p.App, err)
	}}
	Build = Resource{Name: "Build", Find: func(c *Control, guid string) (Place, error) {
		b, err := c.Builds.Get(guid)
		return c.inApp(b.App, err)
	}}
	Droplet = Resource{Name: "Droplet", Find: func(c *Control, guid string) (Place, error) {
		d, err := c.Droplets.Get(guid)
		return c.inApp(d.App, err)
	}}
	Role = Resource{Name: "Role", Find: func(c *Control, guid string) (Place, error) {
		role, err := c.Roles.Get(guid)
		if err != nil || role.Space == "" {
			return Place{Org: role.Org}, err
		}
		return c.spacePlace(role.Space)
	}}
	Route = Resource{Name: "Route", Find: (*Control).routePlace, Readers: routeReaders, shown: ReadRoute}
	// SharedRoute is a route for requests that members of the spaces it is shared with
	// can make.
	SharedRoute = Resource{Name: "Route", Find: (*Control).routePlace, Readers: routeReaders, Shared: true, shown: ReadRoute}
)

func (c *Control) routePlace(guid string) (Place, error) {
	rt, err := c.Registry.Route(guid)
	if err != nil {
		return Place{}, err
	}
	return c.spacePlace(rt.Space)
}

func (c *Control) spacePlace(guid string) (Place, error) {
	sp, err := c.Registry.Space(guid)
	return Place{Org: sp.Org, Space: sp.GUID}, err
}

func (c *Control) appPlace(guid string) (Place, error) {
	a, err := c.Registry.App(guid)
	if err != nil {
		return Place{}, err
	}
	return c.spacePlace(a.Space)
}

// inApp returns the place of a resource that belongs to an app. Resources of a deleted
// app belong to no place.
func (c *Control) inApp(guid string, err error) (Place, error) {
	if err != nil {
		return Place{}, err
	}
	return c.appPlace(guid)
}
