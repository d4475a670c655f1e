package archive

import "crypto/sha256"

const (
	sumBuffers    = 3
	sumBufferSize = 128 << 10
)

// Checksum computes the SHA-256 checksum of the bytes written to it, in its own goroutine.
// The checksum of a file takes longer than all other steps of storing it.
type Checksum struct {
	full, free chan []byte
	sum        chan [sha256.Size]byte // has the result after full is closed
}

// NewChecksum returns a Checksum, which must be closed.
func NewChecksum() *Checksum {
	c := &Checksum{full: make(chan []byte, sumBuffers), free: make(chan []byte, sumBuffers), sum: make(chan [sha256.Size]byte, 1)}
	for range sumBuffers {
		c.free <- make([]byte, 0, sumBufferSize)
	}
	go c.run()
	return c
}

func (c *Checksum) run() {
	h := sha256.New()
	for b := range c.full {
		h.Write(b)
		c.free <- b[:0]
	}
	c.sum <- [sha256.Size]byte(h.Sum(nil))
}

// Write never fails.
func (c *Checksum) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		b := <-c.free
		b = append(b, p[:min(len(p), sumBufferSize)]...)
		p = p[len(b):]
		c.full <- b
	}
	return n, nil
}

// Close ends the checksum and returns it.
func (c *Checksum) Close() [sha256.Size]byte {
	close(c.full)
	return <-c.sum
}
