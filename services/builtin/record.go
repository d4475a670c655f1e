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

// record is one service instance and its current operation.
type record struct {
	GUID      string          `json:"guid"`
	Name      string          `json:"name"` // for messages, as it was at its creation
	Engine    string          `json:"engine"`
	Shape     shape           `json:"shape"`
	Next      *shape          `json:"next,omitempty"`    // the shape that an update applies
	Secret    []byte          `json:"secret"`            // passwords are derived from it
	Stack     string          `json:"stack,omitempty"`   // once known
	Address   netip.Addr      `json:"address"`           // once assigned
	Service   netip.Addr      `json:"service,omitzero"`  // in a cluster: at which clients reach it
	Volume    int64           `json:"volume,omitempty"`  // in a cluster: bytes of its volume
	Replace   string          `json:"replace,omitempty"` // in a cluster: see replaceFile
	Version   string          `json:"version,omitempty"`
	Bindings  []string        `json:"bindings,omitempty"` // guids
	Stale     []string        `json:"stale,omitempty"`    // guids of bindings whose users still have to be dropped
	Doing     services.Action `json:"doing,omitempty"`    // in progress; empty: none
	Step      string          `json:"step,omitempty"`     // its progress, for users
	State     services.State  `json:"state"`              // of the last operation
	Error     string          `json:"error,omitempty"`    // the reason of a failure
	Snapshots []Snapshot      `json:"snapshots,omitempty"`
	Frozen    bool            `json:"frozen,omitempty"`    // it may be frozen for a snapshot
	Full      bool            `json:"full,omitempty"`      // it has more data than its plan allows
	Restoring bool            `json:"restoring,omitempty"` // a restore may have replaced its data
	CreatedAt time.Time       `json:"created_at"`
}

// shape has the settings that an update can change.
type shape struct {
	Plan       string     `json:"plan"` // name
	Parameters parameters `json:"parameters"`
}

// usable reports whether there is a server that accepts requests.
func (r record) usable() bool {
	return r.Doing != services.Create && r.Doing != services.Delete && r.Address.IsValid()
}

// password returns the password of a user of the instance. It is always the same for
// the same name.
func (r record) password(of string) string {
	m := hmac.New(sha256.New, r.Secret)
	m.Write([]byte(of))
	return hex.EncodeToString(m.Sum(nil)[:20])
}

// salt returns a salt that cannot be predicted without the secret.
func (r record) salt(of string) []byte {
	m := hmac.New(sha256.New, r.Secret)
	m.Write([]byte("salt/" + of))
	return m.Sum(nil)[:16]
}

// userOf returns the name of a binding's user. It is short enough for every engine.
func userOf(binding string) string {
	sum := sha256.Sum256([]byte(binding))
	return "u" + hex.EncodeToString(sum[:8])
}

// bindingPassword returns the password of a binding's user.
func (r record) bindingPassword(binding string) string { return r.password("binding/" + binding) }

func (r record) hasBinding(binding string) bool { return slices.Contains(r.Bindings, binding) }

func newSecret() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails: it crashes the program if the kernel has no random numbers
	return b
}

// newVersion returns a new unique version of a server.
func newVersion() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// safeGUID matches a guid that is safe as a folder name.
var safeGUID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,63}$`)
