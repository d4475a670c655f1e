// Package console has the sessions and the files of the web console.
//
//	dew console ─▶ Link ─▶ /console/login#CODE ─▶ script: POST /console/login ─▶ cookie
//	                                                                              │
//	page ─▶ requests to the API with the cookie ─▶ Authenticate ─▶ the user's principal
//
// The page uses only the public API, and permissions are those of the user. The code is
// in the fragment of the URL, which browsers do not send: a link preview or a prefetch
// requests only /console/login and cannot use up the code.
package console

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/ticket"
)

// Path is the path of the page, with the files and client-side routes below it.
const Path = "/console"

// Lifetimes of links and sessions.
const (
	LinkLifetime    = time.Minute
	SessionIdle     = 12 * time.Hour
	SessionLifetime = 7 * 24 * time.Hour

	maxLinks    = 20 // unused links of one user
	maxSessions = 50 // of one user
	usedEvery   = time.Minute
	sweepEvery  = time.Hour
	maxAgent    = 200 // bytes of a stored user agent
)

// Reasons why a request is refused.
var (
	ErrEnded   = errors.New("the console session has ended")
	ErrBadLink = errors.New("the link was already used or has expired")
	ErrForeign = errors.New("the request comes from a page of another origin")
	ErrCSRF    = errors.New("the header X-CSRF-Token is missing or wrong")
	ErrNoRoles = errors.New("the user has no role in an organization or space")
)

// Config holds the dependencies of a Console.
type Config struct {
	DB      *store.DB
	Auth    *auth.Server
	Roles   *auth.Roles
	Public  *url.URL // URL of the API
	Version string   // version of the program
	Logger  *slog.Logger
}

// Console is the server's part of the web console. It is safe for concurrent use.
type Console struct {
	c        Config
	links    *ticket.Store[auth.Grant]
	sessions store.Bucket[Session]
	assets   *assets

	mu        sync.Mutex // guards the field below
	lastSweep time.Time
}

// New returns the console with the sessions that are stored in c.DB.
func New(c Config) (*Console, error) {
	for name, missing := range map[string]bool{
		"DB": c.DB == nil, "Auth": c.Auth == nil, "Roles": c.Roles == nil, "Public": c.Public == nil, "Logger": c.Logger == nil,
	} {
		if missing {
			return nil, fmt.Errorf("cannot create the console without %s", name)
		}
	}
	files, err := loadAssets(c.Version)
	if err != nil {
		return nil, err
	}
	return &Console{
		c: c, links: ticket.New[auth.Grant](maxLinks), assets: files,
		sessions: store.In(c.DB, "console sessions", store.Index("user", func(s Session) string { return s.User })),
	}, nil
}
