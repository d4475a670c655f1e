package archive

import (
	"context"
	"fmt"
	"io"
	"regexp"
)

// Unfinished is the suffix of the name of an image that is not complete yet.
const Unfinished = ".half"

// UntilDone returns a reader of r that fails once ctx is done. It stops a long copy.
func UntilDone(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// TarEnd is the number of zero bytes at the end of a tar.
const TarEnd = 1024

// WriteAll writes b, for a list of calls whose errors are joined.
func WriteAll(w io.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}

// Size formats a size as the cf CLI does: 12.3M.
func Size(n int64) string {
	units := []string{"B", "K", "M", "G", "T"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 || f == float64(int64(f)) {
		return fmt.Sprintf("%d%s", int64(f), units[i])
	}
	return fmt.Sprintf("%.1f%s", f, units[i])
}

// ValidSHA matches a SHA-256 in hex.
var ValidSHA = regexp.MustCompile(`^[0-9a-f]{64}$`)
