package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/ticket"
)

// Session is a browser that opened a link. Of its token, only the hash is stored.
type Session struct {
	ID        string // from the hash of the token
	User      string // guid
	Name      string // name of the user at login
	Origin    string // origin of the user
	Grant     auth.Grant
	CreatedAt time.Time
	UsedAt    time.Time // accurate to a minute
	Agent     string    // user agent of the browser
	Salt      string    // of the page's token
}

// Expires returns when the session ends if it is not used.
func (s Session) Expires() time.Time {
	idle, last := s.UsedAt.Add(SessionIdle), s.CreatedAt.Add(SessionLifetime)
	if idle.Before(last) {
		return idle
	}
	return last
}

// Link returns the URL that opens the console for a user, once, and until when.
func (c *Console) Link(p auth.Principal) (link string, expires time.Time, err error) {
	g, err := c.c.Auth.Grant(p)
	if err != nil {
		return "", time.Time{}, err
	}
	if _, err := c.resume(g); err != nil {
		return "", time.Time{}, err
	}
	expires = now().Add(LinkLifetime)
	u := c.c.Public.JoinPath(Path, "login")
	u.Fragment = c.links.Issue(g.User, g, LinkLifetime)
	return u.String(), expires, nil
}

// resume returns the principal of a grant in its present state. A user without a role
// sees nothing, so the user has no session.
func (c *Console) resume(g auth.Grant) (auth.Principal, error) {
	p, err := c.c.Auth.ResumeGrant(g)
	if errors.Is(err, auth.ErrRevoked) {
		return p, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	if err != nil || p.GlobalReader() {
		return p, err
	}
	roles, err := c.c.Roles.OfUser(p.ID)
	if err == nil && len(roles) == 0 {
		err = ErrNoRoles
	}
	return p, err
}

// login exchanges the code of a link for a session, and returns its token and the token
// of the page.
func (c *Console) login(code, agent string) (token, page string, err error) {
	g, ok := c.links.Take(code)
	if !ok {
		return "", "", ErrBadLink
	}
	p, err := c.resume(g)
	if errors.Is(err, ErrEnded) { // the password changed since
		return "", "", ErrBadLink
	}
	if err != nil {
		return "", "", err
	}
	u, err := c.c.Auth.Accounts().User(p.ID)
	if err != nil {
		return "", "", err
	}
	token = ticket.Secret()
	s := Session{ID: sessionID(token), User: u.GUID, Name: u.Name, Origin: u.Origin, Grant: g, CreatedAt: now(), Agent: cleanAgent(agent), Salt: ticket.Secret()}
	s.UsedAt, s.Grant.ID = s.CreatedAt, "console-"+s.ID
	if err := c.store(s); err != nil {
		return "", "", fmt.Errorf("cannot store the console session: %w", err)
	}
	return token, pageToken(s, token), nil
}

// store stores a new session. It ends the user's sessions that were not used for the
// longest time, beyond the limit.
func (c *Console) store(s Session) error {
	own, err := c.sessions.By("user", s.User)
	if err != nil {
		return err
	}
	slices.SortFunc(own, func(a, b Session) int { return a.UsedAt.Compare(b.UsedAt) })
	for _, old := range own[:max(0, len(own)-maxSessions+1)] {
		if err := c.end(old); err != nil {
			return err
		}
	}
	return c.sessions.Put(s.ID, s)
}

// resumeSession returns the session of a token and its user in the present state. It
// deletes a session that has ended and returns ErrEnded.
func (c *Console) resumeSession(token string) (Session, auth.Principal, error) {
	if err := c.sweep(); err != nil {
		return Session{}, auth.Principal{}, err
	}
	s, err := c.sessions.Get(sessionID(token))
	if errors.Is(err, store.ErrNotFound) {
		return s, auth.Principal{}, ErrEnded
	}
	if err != nil {
		return s, auth.Principal{}, fmt.Errorf("cannot read a console session: %w", err)
	}
	p, err := c.check(s)
	if err != nil {
		return s, auth.Principal{}, err
	}
	if now().Sub(s.UsedAt) < usedEvery {
		return s, p, nil
	}
	s, err = c.sessions.Update(s.ID, func(s *Session) error { s.UsedAt, s.Name = now(), p.Name; return nil })
	if errors.Is(err, store.ErrNotFound) { // another request ended it
		return s, auth.Principal{}, ErrEnded
	}
	return s, p, err
}

// check returns the principal of a session. It deletes a session that has ended.
func (c *Console) check(s Session) (auth.Principal, error) {
	var p auth.Principal
	err := ErrEnded
	if now().Before(s.Expires()) {
		p, err = c.resume(s.Grant)
	}
	if errors.Is(err, ErrEnded) || errors.Is(err, ErrNoRoles) {
		return auth.Principal{}, errors.Join(ErrEnded, c.end(s))
	}
	return p, err
}

// end deletes a session. The revocation of its grant also ends its open streams and
// terminals.
func (c *Console) end(s Session) error {
	if err := c.c.Auth.RevokeGrant(s.Grant, s.CreatedAt.Add(SessionLifetime)); err != nil {
		return fmt.Errorf("cannot end a console session: %w", err)
	}
	if err := c.sessions.Delete(s.ID); err != nil {
		return fmt.Errorf("cannot delete a console session: %w", err)
	}
	return nil
}

// sweep deletes the sessions that have ended, once in a while.
func (c *Console) sweep() error {
	c.mu.Lock()
	at := time.Now()
	due := at.Sub(c.lastSweep) >= sweepEvery
	if due {
		c.lastSweep = at
	}
	c.mu.Unlock()
	if !due {
		return nil
	}
	_, err := c.Sessions("")
	return err
}

// Sessions returns the sessions of a user, the last used first. An empty guid means all
// users.
func (c *Console) Sessions(user string) (out []Session, err error) {
	var all []Session
	if user == "" {
		all, err = c.sessions.All()
	} else {
		all, err = c.sessions.By("user", user)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list console sessions: %w", err)
	}
	for _, s := range all {
		_, err := c.check(s)
		if errors.Is(err, ErrEnded) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Session) int { return b.UsedAt.Compare(a.UsedAt) })
	return out, nil
}

// Session returns the session with an id.
func (c *Console) Session(id string) (Session, error) {
	s, err := c.sessions.Get(id)
	if errors.Is(err, store.ErrNotFound) {
		return s, ErrEnded
	}
	if err != nil {
		return s, fmt.Errorf("cannot read a console session: %w", err)
	}
	return s, nil
}

// End ends a session. An empty user means a session of any user. It returns ErrEnded if
// the user has no such session.
func (c *Console) End(id, user string) error {
	s, err := c.Session(id)
	if err != nil {
		return err
	}
	if user != "" && s.User != user {
		return ErrEnded
	}
	return c.end(s)
}

// sessionID returns the id of the session with a token. The token has 256 random bits,
// so the id does not help to guess it.
func sessionID(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:16])
}

// pageToken returns the token that the page sends with each request. Only dewd can
// derive it from the token in the cookie, because the salt never leaves the store.
func pageToken(s Session, token string) string {
	h := hmac.New(sha256.New, []byte(s.Salt))
	h.Write([]byte(token))
	return hex.EncodeToString(h.Sum(nil))
}

// cleanAgent returns a user agent in the form in which it is stored and shown.
func cleanAgent(agent string) string {
	agent = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, agent)
	return agent[:min(len(agent), maxAgent)]
}

func now() time.Time { return time.Now().UTC().Round(0) }
