package builtin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/dewrun/dew/services"
)

// record is one service instance and what is being done to it.
type record struct {
	GUID      string          `json:"guid"`
	Name      string          `json:"name"` // in sentences; of its creation
	Engine    string          `json:"engine"`
	Shape     shape           `json:"shape"`
	Next      *shape          `json:"next,omitempty"`  // what an update makes of it
	Secret    []byte          `json:"secret"`          // what passwords are made from
	Stack     string          `json:"stack,omitempty"` // once it is known
	Address   netip.Addr      `json:"address"`         // once it has one
	Version   string          `json:"version,omitempty"`
	Bindings  []string        `json:"bindings,omitempty"` // guids
	Stale     []string        `json:"stale,omitempty"`    // guids of bindings whose users are still to be dropped
	Doing     services.Action `json:"doing,omitempty"`    // under way; empty: nothing
	Step      string          `json:"step,omitempty"`     // how far that is, for users
	State     services.State  `json:"state"`              // of the last thing that was done
	Error     string          `json:"error,omitempty"`    // why that failed
	Snapshots []Snapshot      `json:"snapshots,omitempty"`
	Frozen    bool            `json:"frozen,omitempty"`    // it may stand still for a snapshot
	Full      bool            `json:"full,omitempty"`      // it has more data than its plan gives
	Restoring bool            `json:"restoring,omitempty"` // its data may be one of two
	CreatedAt time.Time       `json:"created_at"`
}

// shape is what an update can change.
type shape struct {
	Plan       string     `json:"plan"` // name
	Parameters parameters `json:"parameters"`
}

// usable tells whether there is a server that can be asked for something.
func (r record) usable() bool {
	return r.Doing != services.Create && r.Doing != services.Delete && r.Address.IsValid()
}

// password is that of a user of the instance; always the same for the same name.
func (r record) password(of string) string {
	m := hmac.New(sha256.New, r.Secret)
	m.Write([]byte(of))
	return hex.EncodeToString(m.Sum(nil)[:20])
}

// salt is random enough for everybody who does not know the secret.
func (r record) salt(of string) []byte {
	m := hmac.New(sha256.New, r.Secret)
	m.Write([]byte("salt/" + of))
	return m.Sum(nil)[:16]
}

// userOf is the name of a binding's user: short enough for every engine.
func userOf(binding string) string {
	sum := sha256.Sum256([]byte(binding))
	return "u" + hex.EncodeToString(sum[:8])
}

// bindingPassword is that of a binding's user.
func (r record) bindingPassword(binding string) string { return r.password("binding/" + binding) }

func (r record) has(binding string) bool { return slices.Contains(r.Bindings, binding) }

func newSecret() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails: it ends the program where the kernel has no random numbers
	return b
}

// newVersion names a way to run a server that no other has.
func newVersion() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// safeGUID is a guid that may be a folder's name.
var safeGUID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,63}$`)
