package directory

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Limits of the responses of a remote platform.
const (
	maxAnswer     = 32 << 20 // bytes
	remoteTimeout = 30 * time.Second
	maxRemote     = 32 // connections to one server
)

const (
	// earlier is how long before its expiry a token is no longer used: requests take
	// time, and clocks differ.
	earlier = 30 * time.Second
	// maxTokenLife limits the lifetime that a server reports for its tokens.
	maxTokenLife = 24 * time.Hour
)

// errToken means that the authorization server returned no token.
var errToken = errors.New("cannot get a token")

// answered is the error for an unexpected status.
type answered struct{ status int }

func (a *answered) Error() string { return fmt.Sprintf("status %d", a.status) }

// RemoteClient returns a client for remote servers. It follows no redirects, so that it
// sends credentials only to configured servers.
func RemoteClient(trust *tls.Config) *http.Client {
	return &http.Client{
		Timeout: remoteTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ForceAttemptHTTP2: true,
			MaxConnsPerHost: maxRemote, MaxIdleConnsPerHost: maxRemote, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RemoteURL checks the URL of a server and removes a slash at the end.
func RemoteURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("it must be like https://server.example.com")
	}
	return strings.TrimRight(s, "/"), nil
}

// asker sends requests to a remote platform. It uses a token of the service until the
// token expires.
type asker struct {
	client     *http.Client
	uaa        string
	id, secret string

	turn    chan struct{} // capacity 1: a mutex for the fields below
	token   string
	expires time.Time
}

func newAsker(c RemoteConfig, uaa string) *asker {
	a := &asker{client: RemoteClient(c.Trust), uaa: uaa, id: c.ClientID, secret: c.ClientSecret, turn: make(chan struct{}, 1)}
	a.turn <- struct{}{}
	return a
}

// get reads the response of a URL into out. A token that is refused before it expires
// was revoked: get tries once more with a new token.
func (a *asker) get(ctx context.Context, address string, out any) error {
	err := a.getOnce(ctx, address, out)
	if s, ok := errors.AsType[*answered](err); ok && s.status == http.StatusUnauthorized && !errors.Is(err, errToken) {
		err = a.getOnce(ctx, address, out)
	}
	return err
}

func (a *asker) getOnce(ctx context.Context, address string, out any) error {
	token, err := a.access(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("cannot ask: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	err = Exchange(a.client, req, out)
	if s, ok := errors.AsType[*answered](err); ok && s.status == http.StatusUnauthorized {
		a.forget(ctx, token)
	}
	return err
}

// access returns a valid token. Concurrent callers wait for the same token.
func (a *asker) access(ctx context.Context) (string, error) {
	select {
	case <-a.turn:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { a.turn <- struct{}{} }()
	if a.token != "" && time.Now().Before(a.expires) {
		return a.token, nil
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {a.id}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.uaa+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	req.SetBasicAuth(a.id, a.secret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var given struct {
		Token string `json:"access_token"`
		Life  int64  `json:"expires_in"` // seconds
	}
	at := time.Now()
	if err := Exchange(a.client, req, &given); err != nil {
		return "", fmt.Errorf("%w as client %s: %w", errToken, a.id, err)
	}
	if given.Token == "" {
		return "", fmt.Errorf("%w as client %s: there is none in the answer", errToken, a.id)
	}
	life := maxTokenLife
	if given.Life >= 0 && given.Life < int64(maxTokenLife/time.Second) {
		life = time.Duration(given.Life) * time.Second
	}
	a.token, a.expires = given.Token, at.Add(life-earlier)
	return a.token, nil
}

// forget drops a refused token, unless there is already a new one.
func (a *asker) forget(ctx context.Context, token string) {
	select {
	case <-a.turn:
	case <-ctx.Done():
		return
	}
	if a.token == token {
		a.token = ""
	}
	a.turn <- struct{}{}
}

// Exchange sends a request and reads the JSON of a 200 response into out. Its errors do
// not include other responses, whose content is unknown.
func Exchange(client *http.Client, req *http.Request, out any) error {
	req.Header.Set("Accept", "application/json")
	said := req.Method + " " + req.URL.Path
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the message already has the address
		}
		return fmt.Errorf("%s: %w", said, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		// Read to the end, so that the connection can be reused.
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		return fmt.Errorf("%s: %w", said, &answered{resp.StatusCode})
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: cannot read the answer: %w", said, err)
	case len(raw) > maxAnswer:
		return fmt.Errorf("%s: the answer has more than %d bytes", said, maxAnswer)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s: cannot understand the answer: %w", said, err)
	}
	return nil
}
