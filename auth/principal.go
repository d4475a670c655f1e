package auth

import (
	"context"
	"slices"
	"time"
)

// Scopes that dew itself asks for.
const (
	ScopeAdmin         = "cloud_controller.admin"
	ScopeAdminReadOnly = "cloud_controller.admin_read_only"
	ScopeGlobalAuditor = "cloud_controller.global_auditor"
	ScopeRead          = "cloud_controller.read"
	ScopeWrite         = "cloud_controller.write"
)

// Principal is who asks, as a verified token says.
type Principal struct {
	ID      string // guid of the user, or id of the client
	Name    string
	Client  string // id of the client that the token was given to
	IsUser  bool
	Scopes  []string
	JTI     string
	Expires time.Time

	// sig is the state of the account when the token was given: see signature.
	sig string
	// session is the refresh token that belongs to the token, if one does.
	session string
}

// Has tells whether the token carries a scope.
func (p Principal) Has(scope string) bool { return slices.Contains(p.Scopes, scope) }

// Admin tells whether everything is allowed.
func (p Principal) Admin() bool { return p.Has(ScopeAdmin) }

// GlobalReader tells whether everything may be seen.
func (p Principal) GlobalReader() bool {
	return p.hasAny(ScopeAdmin, ScopeAdminReadOnly, ScopeGlobalAuditor)
}

func (p Principal) hasAny(scopes ...string) bool { return slices.ContainsFunc(scopes, p.Has) }

type principalKey struct{}

// NewContext returns ctx with the principal that a door has already checked. The
// handler of a Server believes it, so only a door that knows its peer may do so.
func NewContext(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns the principal that NewContext put into ctx.
func FromContext(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

// defaultScopes is what every user has.
var defaultScopes = []string{
	"openid", ScopeRead, ScopeWrite, "password.write", "uaa.user",
	"notification_preferences.read", "notification_preferences.write",
	"cloud_controller_service_permissions.read",
}

// adminGroups is what the first user has besides.
var adminGroups = []string{
	ScopeAdmin, "uaa.admin", "scim.read", "scim.write",
	"clients.read", "clients.write", "clients.admin", "clients.secret",
	"notifications.manage", "notifications.write", "notifications.admin", "critical_notifications.write",
	"notification_templates.read", "notification_templates.write", "notification_templates.admin",
	"notification_preferences.admin", "emails.write",
}
