package notify

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/notify/delivery"
	"github.com/dewrun/dew/testkit"
)

// handlerTransport is a transport without a network, so that it works in virtual time.
type handlerTransport struct{ http.Handler }

func (a handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w.Result(), nil
}

// signer is an authorization server that can hide its keys and counts the requests for
// them.
type signer struct {
	http.Handler
	hidden   atomic.Bool
	requests atomic.Int32
}

func (s *signer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/uaa/token_keys" {
		s.requests.Add(1)
		if s.hidden.Load() {
			_, _ = io.WriteString(w, `{"keys":[{"kty":"MAC","kid":"old","value":"x"}]}`)
			return
		}
	}
	s.Handler.ServeHTTP(w, r)
}

func newRemoteKeys(t testing.TB, h http.Handler) *RemoteKeys {
	t.Helper()
	k := testkit.Must(NewRemoteKeys(t.Context(), KeysConfig{UAA: authURL + "/uaa", Logger: slog.New(slog.DiscardHandler)}))(t)
	k.client.Transport = handlerTransport{h}
	return k
}

// Tokens of a real server are accepted with their claims; other tokens are rejected.
func TestRemoteKeysVerify(t *testing.T) {
	w := newHTTPWorld(t)
	k := newRemoteKeys(t, w.auth.Handler())
	if err := k.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := k.Verify(w.client("mailer", ScopeWrite, ScopeEmails))
	if err != nil || p.Client != "mailer" || p.ID != "mailer" || p.IsUser || !p.Has(ScopeWrite) || p.Has(ScopeManage) || p.Expires.IsZero() || p.JTI == "" {
		t.Errorf("client = %+v, %v", p, err)
	}
	guid, token := w.user("ann")
	if p, err = k.Verify(token); err != nil || p.ID != guid || p.Name != "ann" || !p.IsUser || p.Client != auth.ClientCF {
		t.Errorf("user = %+v, %v", p, err)
	}

	good := w.client("mailer")
	for name, tt := range map[string]struct {
		token string
		want  error
		says  string // the message for the client
	}{
		"expired":           {w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Second).Unix() }), auth.ErrExpired, reasonExpired},
		"too early":         {w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() }), auth.ErrInvalidToken, reasonTooEarly},
		"no end":            {w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { delete(c, "exp") }), auth.ErrInvalidToken, reasonOther},
		"other server":      {w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { c["iss"] = "http://other.example.com/oauth/token" }), auth.ErrInvalidToken, reasonOther},
		"refresh token":     {w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { c["jti"] = "abc-r" }), auth.ErrInvalidToken, reasonOther},
		"no client":         {w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { delete(c, "client_id") }), auth.ErrInvalidToken, reasonOther},
		"scope as text":     {w.signWith(good, func(_ *jwt.Token, c jwt.MapClaims) { c["scope"] = ScopeWrite }), auth.ErrInvalidToken, reasonOther},
		"unknown key":       {w.signWith(good, func(t *jwt.Token, _ jwt.MapClaims) { t.Header["kid"] = "zzz" }), auth.ErrInvalidToken, "unknown key with id zzz"},
		"no key":            {w.signWith(good, func(t *jwt.Token, _ jwt.MapClaims) { delete(t.Header, "kid") }), auth.ErrInvalidToken, reasonNoKey},
		"another algorithm": {w.signWith(good, func(t *jwt.Token, _ jwt.MapClaims) { t.Method, t.Header["alg"] = jwt.SigningMethodRS512, "RS512" }), auth.ErrInvalidToken, "Unsupported signing method RS512"},
		"forged":            {good[:strings.LastIndexByte(good, '.')] + "." + strings.Repeat("A", 342), auth.ErrInvalidToken, reasonForged},
		"long":              {strings.Repeat("a", maxToken+1), auth.ErrInvalidToken, reasonSegments},
		"nothing":           {"", auth.ErrInvalidToken, reasonSegments},
	} {
		p, err := k.Verify(tt.token)
		if !errors.Is(err, tt.want) || p.ID != "" {
			t.Errorf("%s: %+v, %v, want %v", name, p, err, tt.want)
			continue
		}
		if got, want := tokenError(delivery.V1, tt.token, err).Error(), unauthorized(tt.says).Error(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// An unknown key is requested at once, and then at most once a minute. Known keys stay
// if the server returns nothing usable.
func TestRemoteKeysRefresh(t *testing.T) {
	w := newHTTPWorld(t)
	s := &signer{Handler: w.auth.Handler()}
	k := newRemoteKeys(t, s)
	token := w.client("mailer", ScopeWrite)
	stranger := w.signWith(token, func(t *jwt.Token, _ jwt.MapClaims) { t.Header["kid"] = "zzz" })

	s.hidden.Store(true)
	if err := k.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "no RSA key") {
		t.Errorf("keys of no use: %v", err)
	}
	for range 3 {
		if _, err := k.Verify(token); !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("without keys: %v", err)
		}
	}
	if n := s.requests.Load(); n != 2 { // one for Load, and one for three tokens
		t.Errorf("asked %d times, want 2", n)
	}
	s.hidden.Store(false)
	k.lastRequest = k.lastRequest.Add(-refreshNeeded)
	if _, err := k.Verify(token); err != nil {
		t.Errorf("a minute later: %v", err)
	}
	if _, err := k.Verify(stranger); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("stranger: %v", err)
	}
	if n := s.requests.Load(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	s.hidden.Store(true)
	if err := k.Load(t.Context()); err == nil {
		t.Error("no error when the keys are of no use")
	}
	if _, err := k.Verify(token); err != nil {
		t.Errorf("known keys did not stay: %v", err)
	}
}

// Keys are requested at intervals, and a removed key is no longer accepted.
func TestRemoteKeysRun(t *testing.T) {
	w := newHTTPWorld(t)
	rec := httptest.NewRecorder()
	w.auth.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/uaa/token_keys", http.NoBody))
	shown := rec.Body.String()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		k := newRemoteKeys(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path != "/uaa/token_keys" {
				http.NotFound(w, r) // it does not report its issuer
				return
			}
			_, _ = io.WriteString(w, shown)
		}))
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.Run(ctx) }()
		mu.Lock()
		shown = strings.Replace(shown, `"kid":"`, `"kid":"new-`, 1)
		mu.Unlock()
		before := *k.ring.Load()
		time.Sleep(refreshKeys + time.Second) // virtual time
		synctest.Wait()
		for id := range before.keys {
			if _, ok := k.ring.Load().keys[id]; ok || len(k.ring.Load().keys) != 1 {
				t.Errorf("key %s is still believed", id)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// For any response of a server, every accepted key has an id and enough bits.
func FuzzRemoteKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","value":"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"MAC","kid":"a","value":"x"},{}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var response struct {
			Keys []remoteKey `json:"keys"`
		}
		if json.Unmarshal(raw, &response) != nil {
			return
		}
		keys, err := signingKeys(response.Keys)
		if (err == nil) != (len(keys) > 0) {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		for id, key := range keys {
			if id == "" || key.N.BitLen() < minKeyBits {
				t.Errorf("key %q of %d bits", id, key.N.BitLen())
			}
		}
	})
}
