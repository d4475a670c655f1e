package auth

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// Scopes that dew itself checks.
const (
	ScopeAdmin         = "cloud_controller.admin"
	ScopeAdminReadOnly = "cloud_controller.admin_read_only"
	ScopeGlobalAuditor = "cloud_controller.global_auditor"
	ScopeRead          = "cloud_controller.read"
	ScopeWrite         = "cloud_controller.write"
)

// Principal is the authenticated caller, according to a verified token.
type Principal struct {
	ID      string // guid of the user, or id of the client
	Name    string
	Client  string // id of the client that the token was issued to
	IsUser  bool
	Scopes  []string
	JTI     string
	Expires time.Time

	// sig is the state of the account when the token was issued: see signature.
	sig string
	// session is the id of the session that the token belongs to, if there is one.
	session string
}

// Has reports whether the token has a scope.
func (p Principal) Has(scope string) bool { return slices.Contains(p.Scopes, scope) }

// Admin reports whether the principal is an administrator.
func (p Principal) Admin() bool { return p.Has(ScopeAdmin) }

// GlobalReader reports whether the principal can read all resources.
func (p Principal) GlobalReader() bool {
	return p.hasAny(ScopeAdmin, ScopeAdminReadOnly, ScopeGlobalAuditor)
}

func (p Principal) hasAny(scopes ...string) bool { return slices.ContainsFunc(scopes, p.Has) }

type principalKey struct{}

// NewContext returns ctx with a principal that a listener has already authenticated.
// The handler of a Server trusts it, so only a listener that identifies its peer can
// use it.
func NewContext(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns the principal that NewContext put into ctx.
func FromContext(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

type urlKey struct{}

// WithURL returns ctx with the URL at which the client reached the API, for the links
// in responses.
func WithURL(ctx context.Context, url string) context.Context {
	return context.WithValue(ctx, urlKey{}, url)
}

// baseURL returns the URL of the authorization server for the client of a request.
func (s *core) baseURL(r *http.Request) string {
	if url, ok := r.Context().Value(urlKey{}).(string); ok {
		return url + "/uaa"
	}
	return s.cfg.PublicURL + "/uaa"
}

// defaultScopes are the scopes of every user.
var defaultScopes = []string{
	"openid", ScopeRead, ScopeWrite, "password.write", "uaa.user",
	"notification_preferences.read", "notification_preferences.write",
	"cloud_controller_service_permissions.read",
}

// adminGroups are the additional scopes of the first user.
var adminGroups = []string{
	ScopeAdmin, "uaa.admin", "scim.read", "scim.write",
	"clients.read", "clients.write", "clients.admin", "clients.secret",
	"notifications.manage", "notifications.write", "notifications.admin", "critical_notifications.write",
	"notification_templates.read", "notification_templates.write", "notification_templates.admin",
	"notification_preferences.admin", "emails.write",
}
