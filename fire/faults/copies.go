package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// noPeer is an address without a listener: a copy must not use the peers of its original.
const noPeer = "127.0.0.1:1"

// copies returns the faults that start a copy of the root elsewhere.
func copies() []Fault {
	return []Fault{
		{Name: "power cut", Weight: 1, Inject: powerCut, Alone: true},
		{Name: "store cut", Weight: 1, Inject: storeCut, Alone: true},
	}
}

// powerCut starts a copy of the root in other folders. It must have every acknowledged
// write, and run every app.
func powerCut(ctx context.Context, e *Env, _ Draw) (func() error, error) {
	resume := e.Pause()
	defer resume()
	noted := e.Note()
	c, err := e.World.Copy("--smtp", noPeer)
	if err != nil {
		return nil, err
	}
	err = c.Start(ctx)
	if err == nil {
		err = noted(ctx, c)
	}
	if err == nil {
		err = c.Faulty()
	}
	if err != nil {
		err = fmt.Errorf("a copy of the root is not complete: %w\n%s", err, c.LogTail())
	}
	return nil, errors.Join(err, c.Remove())
}

// storeCut cuts the store of a copy at a random byte. dewd must refuse it with a plain
// message, or have every acknowledged write.
func storeCut(ctx context.Context, e *Env, d Draw) (func() error, error) {
	resume := e.Pause()
	defer resume()
	noted := e.Note()
	c, err := e.World.Copy("--smtp", noPeer)
	if err != nil {
		return nil, err
	}
	size, left, err := c.Cut(d.Byte)
	if err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	output, err := c.Refused(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	if output == "" {
		return nil, errors.Join(noted(ctx, c), c.Remove())
	}
	return nil, errors.Join(plain(output, size, left), c.Discard())
}

// plain returns an error if dewd did not name the damaged store.
func plain(output string, size, left int64) error {
	switch {
	case strings.Contains(output, "goroutine "):
		return fmt.Errorf("dewd crashed on a store that was cut at byte %d of %d:\n%s", left, size, output)
	case !strings.Contains(output, "is damaged"):
		return fmt.Errorf("dewd did not name the damaged store, cut at byte %d of %d:\n%s", left, size, output)
	}
	return nil
}
