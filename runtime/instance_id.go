package runtime

import (
	"crypto/rand"
	"encoding/hex"
)

// InstanceID identifies one run of a slot: 28 characters, 8-4-4-4-4 hex digits. The
// same value is used in the container's name, in CF_INSTANCE_GUID and in the exit
// record.
type InstanceID string

// NewInstanceID returns a new unique id.
func NewInstanceID() InstanceID {
	var b [12]byte
	rand.Read(b[:]) // never fails: it crashes the program if the kernel has no random numbers
	h := hex.EncodeToString(b[:])
	return InstanceID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// Valid reports whether id has the format of an instance id. It checks ids that are
// read from labels and file names.
func (id InstanceID) Valid() bool {
	if len(id) != 28 {
		return false
	}
	for i, c := range []byte(id) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		digit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if dash != (c == '-') || !dash && !digit {
			return false
		}
	}
	return true
}
