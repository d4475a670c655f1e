package smoke

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dewrun/dew/api/v3"
)

// exit runs a check that stops a process. It acts once, waits for the exit record,
// compares it, and waits until the instance runs again.
func (c *checker) exit(ctx context.Context, k Check, a subject) error {
	before, err := c.client.Processes().Crashes(ctx, a.guid)
	if err != nil {
		return err
	}
	old := map[string]bool{}
	for _, b := range before {
		old[crashKey(b)] = true
	}
	bounded, cancel := context.WithTimeout(ctx, k.Timeout)
	defer cancel()
	// A session can break off with the instance that it stops.
	if err := c.causeExit(bounded, k, a); err != nil && (k.SSH == nil || isMismatch(err)) {
		return asFailure(causeOf(ctx, err), StatusAssertion)
	}
	var crash v3.Crash
	err = c.until(ctx, k.Timeout, func(ctx context.Context) error {
		now, err := c.client.Processes().Crashes(ctx, a.guid)
		if err != nil {
			return err
		}
		var ok bool
		if crash, ok = newCrash(now, old, k.Kill); !ok {
			return fmt.Errorf("app %s has no new exit record", a.name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.watch.accept(crash)
	if err := k.Exit.verify(crash.Description, crash.Reason); err != nil {
		return asFailure(err, StatusAssertion)
	}
	return c.until(ctx, k.Timeout, func(ctx context.Context) error { return c.awaitRestart(ctx, crash) })
}

// causeExit performs the action that stops the process, once.
func (c *checker) causeExit(ctx context.Context, k Check, a subject) error {
	if k.Kill == nil {
		return c.try(ctx, k, a)
	}
	ps, err := c.client.Processes().List(ctx, a.guid)
	if err != nil {
		return err
	}
	var types []string
	for _, p := range ps {
		if p.Type == k.Kill.Process {
			signal := strings.TrimPrefix(strings.ToUpper(k.Kill.Signal), "SIG")
			return c.client.Processes().Kill(ctx, p.GUID, v3.Kill{Index: k.Kill.Instance, Sidecar: k.Kill.Sidecar, Signal: signal})
		}
		types = append(types, p.Type)
	}
	return failed(StatusUsage, "line %d: kill.process: app %s has no process %q; its processes are %s", k.Line, a.name, k.Kill.Process, strings.Join(types, ", "))
}

func isMismatch(err error) bool {
	m := (*mismatch)(nil)
	return errors.As(err, &m)
}

// newCrash finds the crash that a check caused. With a kill check, the instance is
// known.
func newCrash(now []v3.Crash, old map[string]bool, k *KillCheck) (v3.Crash, bool) {
	for i := len(now) - 1; i >= 0; i-- {
		c := now[i]
		if !old[crashKey(c)] && (k == nil || c.Type == k.Process && c.Index == k.Instance) {
			return c, true
		}
	}
	return v3.Crash{}, false
}

// awaitRestart waits until another instance runs in place of the crashed one.
func (c *checker) awaitRestart(ctx context.Context, crash v3.Crash) error {
	stats, err := c.client.Processes().Stats(ctx, crash.Process)
	if err != nil {
		return err
	}
	for _, s := range stats {
		if s.Index != crash.Index {
			continue
		}
		if s.State == v3.StateRunning && s.InstanceGUID != crash.Instance {
			return nil
		}
		return fmt.Errorf("instance %d of process %s is not running again: its state is %s", s.Index, crash.Type, strings.ToLower(s.State))
	}
	return fmt.Errorf("instance %d of process %s no longer exists", crash.Index, crash.Type)
}
