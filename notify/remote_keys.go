package notify

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/directory"
)

const (
	minKeyBits    = 2048
	maxKeys       = 100
	maxToken      = 16 << 10 // bytes
	refreshKeys   = time.Minute
	refreshNeeded = time.Minute // the minimum time between two requests because of unknown keys
)

// KeysConfig configures the access to a remote authorization server.
type KeysConfig struct {
	UAA    string        // https://uaa.example.com
	Every  time.Duration // between two requests for the keys (0: a minute)
	Trust  *tls.Config   // nil: the machine's certificates
	Logger *slog.Logger
}

// RemoteKeys is the Verifier of tokens that a remote authorization server has signed. A
// token is valid until it expires: RemoteKeys does not check whether it was revoked.
//
//	Load, Run ─ /token_keys ─▶ keys ◀── Verify
//	                            ▲          │ an unknown key: request the keys,
//	                            └──────────┘ but at most once a minute
type RemoteKeys struct {
	c          KeysConfig
	uaa        string
	client     *http.Client
	serviceCtx context.Context // of the service
	ring       atomic.Pointer[ring]

	mu          sync.Mutex // held while Verify requests keys
	lastRequest time.Time  // time of the last request; guarded by mu
}

// ring has the keys and the issuer of the server at one point in time.
type ring struct {
	keys   map[string]*rsa.PublicKey // by kid
	issuer string                    // of all tokens; empty: the server does not report it
}

// NewRemoteKeys checks c. No token can be verified before Load. When ctx is cancelled,
// it requests no more keys.
func NewRemoteKeys(ctx context.Context, c KeysConfig) (*RemoteKeys, error) {
	uaa, err := directory.RemoteURL(c.UAA)
	if err != nil {
		return nil, fmt.Errorf("cannot use the authorization server at %q: %w", c.UAA, err)
	}
	if c.Logger == nil {
		return nil, errors.New("cannot create the token verifier without Logger")
	}
	if c.Every <= 0 {
		c.Every = refreshKeys
	}
	k := &RemoteKeys{c: c, uaa: uaa, client: directory.RemoteClient(c.Trust), serviceCtx: ctx}
	k.ring.Store(&ring{})
	return k, nil
}

// Load requests the keys. If that fails, the previous keys stay valid.
func (k *RemoteKeys) Load(ctx context.Context) error {
	var response struct {
		Keys []remoteKey `json:"keys"`
	}
	if err := k.get(ctx, "/token_keys", &response); err != nil {
		return fmt.Errorf("cannot get the token keys: %w", err)
	}
	keys, err := signingKeys(response.Keys)
	if err != nil {
		return fmt.Errorf("cannot use the token keys: %w", err)
	}
	// Several zones of a server can sign with the same keys; only the issuer
	// distinguishes their tokens. A server without this page has no zones.
	var config struct {
		Issuer string `json:"issuer"`
	}
	if err := k.get(ctx, "/.well-known/openid-configuration", &config); err != nil && !directory.IsMissing(err) {
		return fmt.Errorf("cannot get the issuer of the tokens: %w", err)
	}
	k.ring.Store(&ring{keys: keys, issuer: config.Issuer})
	return nil
}

func (k *RemoteKeys) get(ctx context.Context, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.uaa+path, http.NoBody)
	if err != nil {
		return err
	}
	return directory.Exchange(k.client, req, out)
}

// Run requests the keys at intervals until ctx is cancelled, so that removed keys are
// no longer accepted.
func (k *RemoteKeys) Run(ctx context.Context) error {
	tick := time.NewTicker(k.c.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.Load(ctx); err != nil && ctx.Err() == nil {
			k.c.Logger.Warn("cannot refresh the token keys; the previous keys stay valid", "err", err)
		}
	}
}

// remoteKey is the JSON format of a key.
type remoteKey struct {
	Type  string `json:"kty"`
	ID    string `json:"kid"`
	Value string `json:"value"` // PEM
}

// signingKeys returns the keys that can sign tokens. The list can contain other keys.
func signingKeys(listed []remoteKey) (map[string]*rsa.PublicKey, error) {
	keys := map[string]*rsa.PublicKey{}
	for _, t := range listed {
		if t.ID == "" || t.Type != "" && t.Type != "RSA" || len(keys) >= maxKeys {
			continue
		}
		public, err := jwt.ParseRSAPublicKeyFromPEM([]byte(t.Value))
		if err == nil && public.N.BitLen() >= minKeyBits {
			keys[t.ID] = public
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("the response has no RSA key of at least %d bits with an id", minKeyBits)
	}
	return keys, nil
}

// remoteClaims are the claims that RemoteKeys reads.
type remoteClaims struct {
	jwt.RegisteredClaims
	Scope    []string `json:"scope"`
	ClientID string   `json:"client_id"`
	UserID   string   `json:"user_id"`
	UserName string   `json:"user_name"`
}

// Verify implements Verifier.
func (k *RemoteKeys) Verify(token string) (auth.Principal, error) {
	if len(token) > maxToken {
		return auth.Principal{}, fmt.Errorf("%w: the token has more than %d bytes", auth.ErrInvalidToken, maxToken)
	}
	c := &remoteClaims{}
	_, err := jwt.ParseWithClaims(token, c, k.keyOf, jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg()}), jwt.WithExpirationRequired())
	if errors.Is(err, jwt.ErrTokenExpired) {
		return auth.Principal{}, auth.ErrExpired
	}
	if err != nil {
		return auth.Principal{}, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
	}
	if issuer := k.ring.Load().issuer; issuer != "" && c.Issuer != issuer {
		return auth.Principal{}, fmt.Errorf("%w: the token has a different issuer", auth.ErrInvalidToken)
	}
	// Refresh tokens look similar; their ids have this suffix.
	if c.ClientID == "" || strings.HasSuffix(c.ID, "-r") {
		return auth.Principal{}, fmt.Errorf("%w: the token is not an access token", auth.ErrInvalidToken)
	}
	p := auth.Principal{ID: c.ClientID, Name: c.ClientID, Client: c.ClientID, Scopes: c.Scope, JTI: c.ID, Expires: c.ExpiresAt.Time}
	if c.UserID != "" {
		p.ID, p.Name, p.IsUser = c.UserID, c.UserName, true
	}
	return p, nil
}

func (k *RemoteKeys) keyOf(t *jwt.Token) (any, error) {
	id, _ := t.Header["kid"].(string)
	if id == "" {
		return nil, errors.New("the token has no key id")
	}
	if key, ok := k.ring.Load().keys[id]; ok {
		return key, nil
	}
	k.loadFor(id)
	if key, ok := k.ring.Load().keys[id]; ok {
		return key, nil
	}
	return nil, fmt.Errorf("no key has the id %q", inbound.Shorten(id))
}

// loadFor requests the keys because of an unknown one, unless it did so shortly before:
// anyone can send a token with an unknown key.
func (k *RemoteKeys) loadFor(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.ring.Load().keys[id]; ok || !k.lastRequest.IsZero() && time.Since(k.lastRequest) < refreshNeeded {
		return
	}
	k.lastRequest = time.Now()
	// Many requests may wait for this load, so it must not use the context of one of
	// them.
	if err := k.Load(k.serviceCtx); err != nil {
		k.c.Logger.Warn("cannot get the token keys for an unknown key id", "err", err)
	}
}
