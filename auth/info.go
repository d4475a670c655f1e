package auth

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
)

// uaaVersion is the UAA version whose answers dew imitates. The command line compares
// it.
const uaaVersion = "77.20.0"

// info describes how to log in. The command line shows every prompt that it finds, so
// there are no others.
func (s *oauthHandlers) info(r *http.Request) (reply, error) {
	base := s.baseURL(r)
	return reply{body: map[string]any{
		"app":       map[string]string{"version": uaaVersion},
		"zone_name": zone,
		"entityID":  base,
		"links":     map[string]string{"uaa": base, "login": base},
		"prompts": map[string][]string{
			"username": {"text", "Email"},
			"password": {"password", "Password"},
			"passcode": {"password", fmt.Sprintf("Temporary Authentication Code ( Get one at %s/passcode )", base)},
		},
	}}, nil
}

func (s *oauthHandlers) healthz(*http.Request) (reply, error) {
	return reply{body: map[string]string{"status": "ok"}}, nil
}

// publicKey is a key in the format that verifiers of tokens expect.
type publicKey struct {
	Type      string `json:"kty"`
	Use       string `json:"use"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Value     string `json:"value"` // PEM
	Modulus   string `json:"n"`
	Exponent  string `json:"e"`
}

func (k key) public() (publicKey, error) {
	pub := &k.private.PublicKey
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return publicKey{}, fmt.Errorf("cannot encode token key %s: %w", k.id, err)
	}
	return publicKey{
		Type: "RSA", Use: "sig", ID: k.id, Algorithm: "RS256",
		Value:    string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		Modulus:  base64.RawURLEncoding.EncodeToString(pub.N.Bytes()),
		Exponent: base64.RawURLEncoding.EncodeToString(big.NewInt(int64(pub.E)).Bytes()),
	}, nil
}

func (s *oauthHandlers) tokenKey(*http.Request) (reply, error) {
	k, err := s.keys.signer().public()
	return reply{body: k}, err
}

func (s *oauthHandlers) tokenKeys(*http.Request) (reply, error) {
	var keys []publicKey
	for _, k := range s.keys {
		p, err := k.public()
		if err != nil {
			return reply{}, err
		}
		keys = append(keys, p)
	}
	return reply{body: map[string]any{"keys": keys}}, nil
}

func (s *oauthHandlers) discovery(r *http.Request) (reply, error) {
	base := s.baseURL(r)
	return reply{body: map[string]any{
		"issuer":                                s.issuer,
		"authorization_endpoint":                base + "/oauth/authorize",
		"token_endpoint":                        base + "/oauth/token",
		"userinfo_endpoint":                     base + "/userinfo",
		"jwks_uri":                              base + "/token_keys",
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post"},
		"grant_types_supported":                 []string{GrantPassword, GrantClient, GrantRefresh},
		"response_types_supported":              []string{"code"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"scopes_supported":                      defaultScopes,
		"claims_supported":                      []string{"sub", "user_name", "origin", "iss", "auth_time", "client_id", "aud", "zid", "grant_type", "user_id", "azp", "scope", "exp", "iat", "jti", "rev_sig", "cid", "email", "given_name", "family_name"},
	}}, nil
}
