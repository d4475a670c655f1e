package notify

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dewrun/dew/auth"
)

// The scopes of the service.
const (
	ScopeWrite          = "notifications.write"
	ScopeManage         = "notifications.manage"
	ScopeAdmin          = "notifications.admin"
	ScopeCritical       = "critical_notifications.write"
	ScopeEmails         = "emails.write"
	ScopeTemplatesRead  = "notification_templates.read"
	ScopeTemplatesWrite = "notification_templates.write"
	ScopePrefsRead      = "notification_preferences.read"
	ScopePrefsWrite     = "notification_preferences.write"
	ScopePrefsAdmin     = "notification_preferences.admin"

	scopeEverything = "uaa.admin"
)

// scopeAliases are other names of the same permissions.
var scopeAliases = map[string]string{
	ScopeWrite:          "notifications_write",
	ScopeTemplatesRead:  "notifications_templates.read",
	ScopeTemplatesWrite: "notifications_templates.write",
}

// hasScope reports whether the caller has a scope, in any of its spellings.
func hasScope(p auth.Principal, scope string) bool {
	other, ok := scopeAliases[scope]
	return p.Has(scope) || ok && p.Has(other)
}

// isAdmin reports whether the caller can change resources of other clients.
func isAdmin(p auth.Principal) bool { return hasScope(p, ScopeAdmin) || p.Has(scopeEverything) }

// canChangeSubscriptions reports whether the caller can change the subscriptions of a
// user: users for themselves, clients for all users.
func canChangeSubscriptions(who auth.Principal, user string) bool {
	return (!who.IsUser || who.ID == user) && hasScope(who, subscriptionScope(who))
}

// subscriptionScope returns the scope that a caller needs to change subscriptions.
func subscriptionScope(who auth.Principal) string {
	if who.IsUser {
		return ScopePrefsWrite
	}
	return ScopePrefsAdmin
}

// permission is the permission that an endpoint requires.
type permission struct {
	open  bool     // no token is needed
	oneOf []string // one of these scopes is enough
	self  bool     // the token belongs to the {user} of the path, or to a client that can change all users
	owner bool     // the token belongs to the {client} of the path, or to an administrator
}

// permissions has the required permission of every pattern of version 1. The server
// does not start if a pattern is missing here, or if a pattern here has no endpoint.
var permissions = map[string]permission{
	"GET /info":          {open: true},
	"GET /debug/metrics": {open: true}, // only counts

	"PUT /registration":                          {oneOf: []string{ScopeManage}},
	"PUT /notifications":                         {oneOf: []string{ScopeManage}},
	"GET /notifications":                         {oneOf: []string{ScopeManage}},
	"PUT /clients/{client}/notifications/{kind}": {oneOf: []string{ScopeManage}, owner: true},
	"PUT /clients/{client}/template":             {oneOf: []string{ScopeManage}, owner: true},
	"PUT " + kindTemplatePath:                    {oneOf: []string{ScopeManage}, owner: true},
	"GET /templates/{id}/associations":           {oneOf: []string{ScopeManage}},

	"POST /templates":        {oneOf: []string{ScopeTemplatesWrite}},
	"GET /templates":         {oneOf: []string{ScopeTemplatesRead}},
	"GET /templates/{id}":    {oneOf: []string{ScopeTemplatesRead}},
	"PUT /templates/{id}":    {oneOf: []string{ScopeTemplatesWrite}},
	"DELETE /templates/{id}": {oneOf: []string{ScopeTemplatesWrite}},
	"GET /default_template":  {oneOf: []string{ScopeTemplatesRead}},
	"PUT /default_template":  {oneOf: []string{ScopeTemplatesWrite}},

	"POST /users/{guid}":         {oneOf: []string{ScopeWrite}},
	"POST /spaces/{guid}":        {oneOf: []string{ScopeWrite}},
	"POST /organizations/{guid}": {oneOf: []string{ScopeWrite}},
	"POST /everyone":             {oneOf: []string{ScopeWrite}},
	"POST /uaa_scopes/{scope}":   {oneOf: []string{ScopeWrite}},
	"POST /emails":               {oneOf: []string{ScopeEmails}},
	"GET /messages/{id}":         {oneOf: []string{ScopeWrite, ScopeEmails}},

	"OPTIONS /user_preferences":        {open: true}, // browsers send no token
	"OPTIONS /user_preferences/{guid}": {open: true},
	"GET /user_preferences":            {oneOf: []string{ScopePrefsRead}},
	"PATCH /user_preferences":          {oneOf: []string{ScopePrefsWrite}},
	"GET /user_preferences/{guid}":     {oneOf: []string{ScopePrefsAdmin}},
	"PATCH /user_preferences/{guid}":   {oneOf: []string{ScopePrefsAdmin}},
}

const kindTemplatePath = "/clients/{client}/notifications/{kind}/template"

// checkPermissions checks that the endpoints and the table have the same patterns.
func checkPermissions(table map[string]permission, endpoints []string) error {
	for _, pattern := range endpoints {
		if _, ok := table[pattern]; !ok {
			return fmt.Errorf("endpoint %q has no permission", pattern)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(endpoints, pattern) {
			return fmt.Errorf("endpoint %q has a permission, but no handler", pattern)
		}
	}
	return nil
}
