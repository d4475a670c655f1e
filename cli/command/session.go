package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

// renewBefore is how long before its expiry a token is renewed.
const renewBefore = time.Minute

// claims are the parts of a token that dew reads. Only the daemon can verify them.
type claims struct {
	ID        string   `json:"jti"`
	UserID    string   `json:"user_id"`
	UserName  string   `json:"user_name"`
	Client    string   `json:"client_id"`
	Expires   int64    `json:"exp"`
	Revocable bool     `json:"revocable"`
	Scopes    []string `json:"scope"`
}

// ReadClaims reads a token. The claims are empty if it is not a token.
func ReadClaims(token string) claims {
	var c claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil || json.Unmarshal(text, &c) != nil {
		return claims{}
	}
	return c
}

// expiresSoon reports whether a token must be renewed. A token without an expiry is used
// until the daemon refuses it.
func expiresSoon(token string, now time.Time) bool {
	exp := ReadClaims(token).Expires
	return exp != 0 && time.Unix(exp, 0).Sub(now) < renewBefore
}

// notLoggedIn is the error for a daemon that needs a token if there is none.
func notLoggedIn(url string) error {
	return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("not logged in to %s", url), Advice: "Log in: dew login " + url + ". To use the daemon of this machine: dew api --unset"}
}

// sessionTokens are the tokens of a stored session.
type sessionTokens struct {
	url      string
	config   ConfigFile
	envLogin EnvLogin // if not complete, the session is the one of dew login
	// login requests a token from the daemon of the session.
	login func(context.Context, client.Grant) (client.Token, error)

	mu  sync.Mutex
	now Session // guarded by mu
}

// Token returns the session's token. It renews a token that expires soon.
func (t *sessionTokens) Token(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.envLogin.checkSession(t.now, t.url); err != nil {
		return "", err
	}
	old := t.now.Access
	if old != "" && !expiresSoon(old, time.Now()) {
		return old, nil
	}
	token, err := t.renew(ctx, old)
	if exp := ReadClaims(old).Expires; err != nil && time.Now().Unix() < exp {
		return old, nil // it is still valid for some seconds
	}
	return token, err
}

// Renew returns a new token for one that the daemon refused.
func (t *sessionTokens) Renew(ctx context.Context, refused string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.Access != refused {
		return t.now.Access, nil // another call has renewed it
	}
	return t.renew(ctx, refused)
}

// renew is called with mu held. It locks the file during the request: a refresh token
// can be valid only once, and a second dew would lose the session.
func (t *sessionTokens) renew(ctx context.Context, old string) (string, error) {
	err := t.config.Update(ctx, func(c *Config) error {
		s := t.envLogin.session(*c, t.url)
		if s.Access == "" || s.Access == old || expiresSoon(s.Access, time.Now()) {
			if err := t.getToken(ctx, &s); err != nil {
				return err
			}
		}
		t.now = s
		t.envLogin.storeSession(c, t.url, s)
		return nil
	})
	return t.now.Access, err
}

// getToken gets a token: with the refresh token, or with the password of the environment.
func (t *sessionTokens) getToken(ctx context.Context, s *Session) error {
	grants := []client.Grant{}
	if s.Refresh != "" {
		grants = append(grants, client.Grant{Refresh: s.Refresh})
	}
	if t.envLogin.complete() {
		grants = append(grants, t.envLogin.grant())
	}
	for _, g := range grants {
		token, err := t.login(ctx, g)
		if GrantRefused(err) {
			continue
		}
		if err != nil {
			return err
		}
		s.SetToken(token)
		return nil
	}
	if t.envLogin.complete() {
		return t.envLogin.refused(t.url)
	}
	if s.Access == "" {
		return notLoggedIn(t.url)
	}
	return &console.Failure{Status: console.StatusFailed, Err: fmt.Errorf("the session of %s at %s has expired", s.LoggedInAs(), t.url), Advice: "Log in again: " + s.LoginCommand(t.url)}
}

// SetToken stores the tokens of a grant. Without a new refresh token the old one stays.
func (s *Session) SetToken(t client.Token) {
	s.Access = t.Access
	if t.Refresh != "" {
		s.Refresh = t.Refresh
	}
}

// LoggedInAs is the name of the user or the client.
func (s Session) LoggedInAs() string {
	if s.Client != "" {
		return "client " + s.Client
	}
	if s.User == "" {
		return "nobody"
	}
	return s.User
}

// LoginCommand is the command that logs in as the same user again.
func (s Session) LoginCommand(url string) string {
	if s.Client != "" {
		return fmt.Sprintf("dew login %s -u %s --client-credentials", url, s.Client)
	}
	return fmt.Sprintf("dew login %s -u %s", url, s.User)
}

// TLS is the configuration that verifies the daemon's certificate.
func (s Session) TLS() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.Insecure} //nolint:gosec // the user asked for it
	if s.CA == "" {
		return c, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate authorities of the system: %w", err)
	}
	if !pool.AppendCertsFromPEM([]byte(s.CA)) {
		return nil, console.UsageError("--ca-cert: the file contains no certificate in PEM format")
	}
	c.RootCAs = pool
	return c, nil
}

// GrantRefused reports whether the authorization server refused a grant.
func GrantRefused(err error) bool {
	e := (*client.Error)(nil)
	return errors.As(err, &e) && (e.Status == http.StatusUnauthorized || e.Status == http.StatusBadRequest)
}
