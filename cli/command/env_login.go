package command

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"os"

	"golang.org/x/crypto/argon2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/cli/console"
)

// EnvLogin is the login from DEW_USERNAME and DEW_PASSWORD. Its session is stored
// separately from the session of dew login.
type EnvLogin struct {
	user, password string
	client         bool // the user is a client, and the password its secret
}

// readEnvLogin reads the environment. The session of dew login shows whether the name
// is the id of an OAuth client.
func readEnvLogin(past Session) EnvLogin {
	s := EnvLogin{user: os.Getenv("DEW_USERNAME"), password: os.Getenv("DEW_PASSWORD")}
	s.client = past.Client == s.user
	return s
}

// complete reports whether both variables are set. Otherwise dew uses the session of dew
// login.
func (s EnvLogin) complete() bool { return s.user != "" && s.password != "" }

// session returns the stored session. With a complete login, it is the one of the same
// user and password.
func (s EnvLogin) session(c Config, url string) Session {
	past := c.Sessions[url]
	if !s.complete() {
		return past
	}
	kept, found := c.Scripts[s.Key(url)]
	if !found || kept.Client != "" != s.client || !matchesPassword(kept.Proof, s.password) {
		kept = Session{Proof: newProof(s.password)}
		if kept.User = s.user; s.client {
			kept.User, kept.Client = "", s.user
		}
	}
	kept.Insecure, kept.CA = past.Insecure, past.CA
	return kept
}

// checkSession fails if DEW_USERNAME is set without a password and the session of dew
// login belongs to another user.
func (s EnvLogin) checkSession(past Session, url string) error {
	if s.complete() || s.user == "" || past.Access == "" || s.user == past.User || s.user == past.Client {
		return nil
	}
	return &console.Failure{
		Status: console.StatusFailed, Err: fmt.Errorf("DEW_USERNAME is %s, but dew is logged in to %s as %s", s.user, url, past.LoggedInAs()),
		Advice: fmt.Sprintf("Log in (dew login %s -u %s), set DEW_PASSWORD as well, or unset DEW_USERNAME", url, s.user),
	}
}

// Key is the name of the session in the config file.
func (s EnvLogin) Key(url string) string { return url + " " + s.user }

// storeSession stores a session for the next command.
func (s EnvLogin) storeSession(c *Config, url string, now Session) {
	if s.complete() {
		c.Scripts[s.Key(url)] = now
	} else {
		c.Sessions[url] = now
	}
}

func (s EnvLogin) grant() client.Grant {
	if s.client {
		return client.Grant{Client: s.user, Secret: s.password}
	}
	return client.Grant{User: s.user, Password: s.password}
}

func (s EnvLogin) refused(url string) error {
	return &console.Failure{
		Status: console.StatusFailed, Err: fmt.Errorf("cannot log in to %s: DEW_PASSWORD is not the password of %s", url, s.user),
		Advice: "Correct DEW_USERNAME and DEW_PASSWORD, or unset both to use the session of dew login",
	}
}

// saltSize is the size of a proof's salt in bytes.
const saltSize = 16

// newProof returns a salted hash of a password. It shows whether the next command has
// the same password.
func newProof(password string) string {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	return base64.RawStdEncoding.EncodeToString(append(salt, hashOf(password, salt)...))
}

// matchesPassword reports whether the proof was made from the password.
func matchesPassword(proof, password string) bool {
	b, err := base64.RawStdEncoding.DecodeString(proof)
	if err != nil || len(b) <= saltSize {
		return false
	}
	salt, hash := bytes.Clone(b[:saltSize]), b[saltSize:]
	return subtle.ConstantTimeCompare(hash, hashOf(password, salt)) == 1
}

// hashOf takes a few milliseconds, because every command of a script waits for it.
func hashOf(password string, salt []byte) []byte {
	const passes, memoryKiB, threads, size = 1, 4 << 10, 1, 32
	return argon2.IDKey([]byte(password), salt, passes, memoryKiB, threads, size)
}
