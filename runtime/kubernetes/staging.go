package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dewrun/dew/droplet"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/kubernetes/link"
)

var _ runtime.StagingContainer = (*container)(nil)

// Written returns the size of the files that the processes have written.
func (c *container) Written(ctx context.Context) (size, files int64, err error) {
	us, err := c.measure(ctx, link.PathUsage+"?disk")
	if err != nil {
		return 0, 0, err
	}
	return us[0].Disk, us[0].Inodes, nil
}

// Pack writes a tar of files of a Pod whose processes have exited.
func (c *container) Pack(ctx context.Context, w io.Writer, p droplet.Packing) error {
	agent, err := c.agent(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	r, err := agent.Relay(ctx, link.PathPack+"?exec="+runtime.MainExec, bytes.NewReader(body))
	if err != nil {
		return callError("cannot pack the staged files", err)
	}
	defer r.Close()
	for buf := make([]byte, 128<<10); ; {
		k, b, err := link.ReadFrame(r, buf)
		if err != nil {
			return fmt.Errorf("cannot pack the staged files: %w", err)
		}
		if k == link.KindPacked {
			return packed(b)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
}

// packed returns how the packing ended.
func packed(b []byte) error {
	var end link.Packed
	if err := json.Unmarshal(b, &end); err != nil {
		return fmt.Errorf("cannot pack the staged files: %w", err)
	}
	switch {
	case end.Refused != "":
		return &droplet.StagingError{Kind: droplet.StagingFailed, Reason: end.Refused}
	case end.Error != "":
		return errors.New("cannot pack the staged files: " + end.Error)
	}
	return nil
}
