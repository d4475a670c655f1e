// Package sso has the login page for browsers, and the authorization codes with which
// dashboards of services learn who the user is.
//
//	dashboard ──▶ /oauth/authorize ──▶ login page ──▶ session (cookie, hours)
//	    ▲                │  ◀───────────────────────────┘
//	    └── code (minutes, once) ──▶ /oauth/token ──▶ Token of the user
//
// Sessions and codes are only in memory, so a restart of the daemon invalidates them.
// A client gets only the scopes that let it identify the user and ask for the user's
// permissions, so there is nothing that a user would have to approve.
package sso
