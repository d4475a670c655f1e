package runtimetest

import (
	"context"
	"io"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
)

var _ runtime.StagingContainer = (*handle)(nil)

// Write sets the number of files that the instance has written. Their size is the Disk
// of Take.
func (c *Container) Write(files int64) {
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	c.files = files
}

// Written implements StagingContainer.Written.
func (h *handle) Written(context.Context) (bytes, files int64, err error) {
	h.container.machine.mu.Lock()
	defer h.container.machine.mu.Unlock()
	return h.container.consumption.Disk, h.container.files, nil
}

// Pack implements StagingContainer.Pack. A Fake has no files, so it writes the names of the
// folders.
func (h *handle) Pack(_ context.Context, w io.Writer, p droplet.Packing) error {
	for _, f := range p.Folders {
		if _, err := io.WriteString(w, f.From+"\n"); err != nil {
			return err
		}
	}
	return nil
}
