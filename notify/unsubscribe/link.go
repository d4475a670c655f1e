// Package unsubscribe has the links in mails that unsubscribe a user without a login, and
// the page behind them.
package unsubscribe

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/dewrun/dew/store"
)

// Subscription is one kind of notification of one client for one user.
type Subscription struct {
	Version int    `json:"v"` // of the API: 1 for kinds, 2 for campaign types
	User    string `json:"u"` // guid
	Client  string `json:"c"`
	Kind    string `json:"k"` // id of the kind, or of the campaign type
}

// Links signs and verifies links. A link is valid as long as the key, which is stored
// with the notifications.
type Links struct {
	key  []byte
	base string // URL of the page
	path string
}

// errSignature is the error for a link that dew did not sign.
var errSignature = errors.New("the link is not valid")

const (
	keySize = 32
	// maxToken is the maximum length of the signed part of a link: ids have at most 255
	// characters each.
	maxToken = 8 << 10
)

// key is the secret that signs links.
type key struct {
	Secret []byte `json:"secret"`
}

// NewLinks returns the links of the service at publicURL. The first call creates the key
// in db.
func NewLinks(db *store.DB, publicURL string) (*Links, error) {
	u, err := url.Parse(publicURL)
	if err != nil {
		return nil, fmt.Errorf("cannot create links to unsubscribe: %w", err)
	}
	if u.Path == "" {
		u.Path = "/" // otherwise the path of the page is relative
	}
	u = u.JoinPath("unsubscribe")
	l := &Links{base: u.String(), path: u.Path}
	keys := store.In[key](db, "notify keys")
	const name = "unsubscribe"
	err = db.Update(func(tx *store.Tx) error {
		k, err := keys.With(tx).Get(name)
		if errors.Is(err, store.ErrNotFound) {
			k = key{Secret: make([]byte, keySize)}
			_, _ = rand.Read(k.Secret) // never fails
			err = keys.With(tx).Put(name, k)
		}
		l.key = k.Secret
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot store the key of the links to unsubscribe: %w", err)
	}
	return l, nil
}

// URL returns the link of a subscription.
func (l *Links) URL(s Subscription) string { return l.base + "/" + l.token(s) }

// token returns the signed subscription.
func (l *Links) token(s Subscription) string {
	payload, err := json.Marshal(s)
	if err != nil {
		return "" // cannot fail: it has only texts
	}
	enc := base64.RawURLEncoding
	return enc.EncodeToString(payload) + "." + enc.EncodeToString(l.sign(payload))
}

// parse returns the subscription of a token that dew signed.
func (l *Links) parse(token string) (s Subscription, err error) {
	if len(token) > maxToken || strings.ContainsAny(token, "\r\n") { // which base64 ignores
		return s, errSignature
	}
	first, second, _ := strings.Cut(token, ".")
	enc := base64.RawURLEncoding.Strict() // each subscription has exactly one token
	payload, err := enc.DecodeString(first)
	if err != nil {
		return s, errSignature
	}
	sum, err := enc.DecodeString(second)
	if err != nil || !hmac.Equal(sum, l.sign(payload)) {
		return s, errSignature
	}
	if err := json.Unmarshal(payload, &s); err != nil {
		return Subscription{}, errSignature
	}
	return s, nil
}

func (l *Links) sign(payload []byte) []byte {
	h := hmac.New(sha256.New, l.key)
	h.Write([]byte("unsubscribe\n"))
	h.Write(payload)
	return h.Sum(nil)
}
