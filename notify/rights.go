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

// spellings are other names of the same permissions.
var spellings = map[string]string{
	ScopeWrite:          "notifications_write",
	ScopeTemplatesRead:  "notifications_templates.read",
	ScopeTemplatesWrite: "notifications_templates.write",
}

// holds reports whether the caller has a scope, in any of its spellings.
func holds(p auth.Principal, scope string) bool {
	other, ok := spellings[scope]
	return p.Has(scope) || ok && p.Has(other)
}

// administers reports whether the caller can change resources of other clients.
func administers(p auth.Principal) bool { return holds(p, ScopeAdmin) || p.Has(scopeEverything) }

// mayChoose reports whether the caller can change the subscriptions of a user: users
// for themselves, clients for all users.
func mayChoose(who auth.Principal, user string) bool {
	if who.IsUser {
		return who.ID == user && holds(who, ScopePrefsWrite)
	}
	return holds(who, ScopePrefsAdmin)
}

// right is the permission that an endpoint requires.
type right struct {
	open  bool     // no token is needed
	oneOf []string // one of these scopes is enough
	self  bool     // the token belongs to the {user} of the path, or to a client that can change all users
	owner bool     // the token belongs to the {client} of the path, or to an administrator
}

// rights has the required permission of every pattern of version 1. The server does not
// start if a pattern is missing here, or if a pattern here has no endpoint.
var rights = map[string]right{
	"GET /info": {open: true},

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

// checkRights checks that the endpoints and the table have the same patterns.
func checkRights(table map[string]right, answered []string) error {
	for _, pattern := range answered {
		if _, ok := table[pattern]; !ok {
			return fmt.Errorf("pattern %q has no right", pattern)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(answered, pattern) {
			return fmt.Errorf("%q has a permission, but no handler", pattern)
		}
	}
	return nil
}
