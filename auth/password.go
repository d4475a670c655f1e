package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// maxPassword is the number of bytes that bcrypt reads. It would ignore the rest.
const maxPassword = 72

// hasher hashes passwords and compares them with hashes.
type hasher struct {
	cost  int
	dummy func() []byte // the hash of a random password
}

func newHasher(cost int) hasher {
	if cost == 0 {
		cost = bcrypt.DefaultCost
	}
	return hasher{cost: cost, dummy: sync.OnceValue(func() []byte {
		hash, err := bcrypt.GenerateFromPassword([]byte(rand.Text()), cost)
		if err != nil {
			panic("auth: bcrypt does not support the cost " + fmt.Sprint(cost))
		}
		return hash
	})}
}

func (h hasher) hash(key, password string) ([]byte, error) {
	switch {
	case password == "":
		return nil, &Invalid{Key: key, Message: "must not be empty"}
	case len(password) > maxPassword:
		return nil, &Invalid{Key: key, Message: fmt.Sprintf("has %d bytes; the limit is %d bytes", len(password), maxPassword)}
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), h.cost)
	if err != nil {
		return nil, fmt.Errorf("cannot hash the %s: %w", key, err)
	}
	return hash, nil
}

// matches takes the same time if there is no hash, so that an attacker cannot find out
// which names exist.
func (h hasher) matches(hash []byte, password string) bool {
	known := hash != nil && password != "" && len(password) <= maxPassword
	if !known {
		hash = h.dummy()
	}
	// A password that is too long is cut only so that the refusal takes the same time.
	err := bcrypt.CompareHashAndPassword(hash, []byte(password)[:min(len(password), maxPassword)])
	return err == nil && known
}

// fingerprint returns a short hash of a list of values.
func fingerprint(facts ...string) string {
	h := sha256.New()
	for _, f := range facts {
		fmt.Fprintf(h, "%d:", len(f))
		io.WriteString(h, f) //nolint:errcheck // a hash does not fail
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
