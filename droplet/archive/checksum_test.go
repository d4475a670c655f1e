package archive

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"
)

// The checksum is that of all bytes, however they are written.
func TestChecksum(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		c, want := NewChecksum(), sha256.New()
		for range r.IntN(10) {
			b := make([]byte, r.IntN(3*sumBufferSize))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			want.Write(b)
			if n, err := c.Write(b); n != len(b) || err != nil {
				t.Fatal(n, err)
			}
			clear(b) // the writer can reuse its buffer
		}
		if got := c.Close(); got != [sha256.Size]byte(want.Sum(nil)) {
			t.Fatalf("the checksum is %x, want %x", got, want.Sum(nil))
		}
	}
}
