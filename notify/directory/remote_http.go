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
	maxResponse    = 32 << 20 // bytes
	remoteTimeout  = 30 * time.Second
	maxConnections = 32 // connections to one server
)

const (
	// expiryMargin is how long before its expiry a token is no longer used: requests
	// take time, and clocks differ.
	expiryMargin = 30 * time.Second
	// maxTokenLifetime limits the lifetime that a server reports for its tokens.
	maxTokenLifetime = 24 * time.Hour
)

// errToken means that the authorization server returned no token.
var errToken = errors.New("cannot get a token")

// statusError is the error for an unexpected status.
type statusError struct{ status int }

func (a *statusError) Error() string { return fmt.Sprintf("status %d", a.status) }

// RemoteClient returns a client for remote servers. It follows no redirects, so that it
// sends credentials only to configured servers.
func RemoteClient(trust *tls.Config) *http.Client {
	return &http.Client{
		Timeout: remoteTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ForceAttemptHTTP2: true,
			MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxConnections, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RemoteURL checks the URL of a server and removes a slash at the end.
func RemoteURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("the URL must have the form https://server.example.com")
	}
	return strings.TrimRight(s, "/"), nil
}

// tokenClient sends requests to a remote platform. It uses a token of the service until
// the token expires.
type tokenClient struct {
	client     *http.Client
	uaa        string
	id, secret string

	lock    chan struct{} // capacity 1: a mutex for the fields below
	token   string
	expires time.Time
}

func newTokenClient(c RemoteConfig, uaa string) *tokenClient {
	a := &tokenClient{client: RemoteClient(c.Trust), uaa: uaa, id: c.ClientID, secret: c.ClientSecret, lock: make(chan struct{}, 1)}
	a.lock <- struct{}{}
	return a
}

// get reads the response of a URL into out. A token that is refused before it expires
// was revoked: get tries once more with a new token.
func (a *tokenClient) get(ctx context.Context, address string, out any) error {
	err := a.getOnce(ctx, address, out)
	if s, ok := errors.AsType[*statusError](err); ok && s.status == http.StatusUnauthorized && !errors.Is(err, errToken) {
		err = a.getOnce(ctx, address, out)
	}
	return err
}

func (a *tokenClient) getOnce(ctx context.Context, address string, out any) error {
	token, err := a.accessToken(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("cannot create the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	err = Exchange(a.client, req, out)
	if s, ok := errors.AsType[*statusError](err); ok && s.status == http.StatusUnauthorized {
		a.dropToken(ctx, token)
	}
	return err
}

// accessToken returns a valid token. Concurrent callers wait for the same token.
func (a *tokenClient) accessToken(ctx context.Context) (string, error) {
	select {
	case <-a.lock:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { a.lock <- struct{}{} }()
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
	var response struct {
		Token string `json:"access_token"`
		Life  int64  `json:"expires_in"` // seconds
	}
	at := time.Now()
	if err := Exchange(a.client, req, &response); err != nil {
		return "", fmt.Errorf("%w as client %s: %w", errToken, a.id, err)
	}
	if response.Token == "" {
		return "", fmt.Errorf("%w as client %s: the response contains no token", errToken, a.id)
	}
	life := maxTokenLifetime
	if response.Life >= 0 && response.Life < int64(maxTokenLifetime/time.Second) {
		life = time.Duration(response.Life) * time.Second
	}
	a.token, a.expires = response.Token, at.Add(life-expiryMargin)
	return a.token, nil
}

// dropToken drops a refused token, unless there is already a new one.
func (a *tokenClient) dropToken(ctx context.Context, token string) {
	select {
	case <-a.lock:
	case <-ctx.Done():
		return
	}
	if a.token == token {
		a.token = ""
	}
	a.lock <- struct{}{}
}

// Exchange sends a request and reads the JSON of a 200 response into out. Its errors do
// not include other responses, whose content is unknown.
func Exchange(client *http.Client, req *http.Request, out any) error {
	req.Header.Set("Accept", "application/json")
	request := req.Method + " " + req.URL.Path
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the message already has the address
		}
		return fmt.Errorf("%s: %w", request, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		// Read to the end, so that the connection can be reused.
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		return fmt.Errorf("%s: %w", request, &statusError{resp.StatusCode})
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: cannot read the response: %w", request, err)
	case len(raw) > maxResponse:
		return fmt.Errorf("%s: the response has more than %d bytes", request, maxResponse)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s: the response is not the expected JSON: %w", request, err)
	}
	return nil
}
