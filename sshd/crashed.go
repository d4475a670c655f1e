package sshd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dewrun/dew/runtime"
)

// crashedPrefix stands before the id of an instance that crashed, in the place of
// an index: cf:<guid>/crashed-<instance>.
const crashedPrefix = "crashed-"

// errCrashed is the answer to forwards.
var errCrashed = errors.New("nothing runs in an instance that crashed: there is nothing to forward to")

// parseCrashed reads the id of a crashed instance; false where there is none.
func parseCrashed(text string) (runtime.InstanceID, bool) {
	id, ok := strings.CutPrefix(text, crashedPrefix)
	return runtime.InstanceID(id), ok && runtime.InstanceID(id).Valid()
}

// crashFiles finds what is kept of the crashed instance that a login names.
func (s *Server) crashFiles(process string, id runtime.InstanceID) (runtime.CrashFiles, error) {
	for _, files := range s.c.Instances.Crashed(process) {
		if files.Instance == id {
			return files, nil
		}
	}
	return runtime.CrashFiles{}, fmt.Errorf("nothing is kept of instance %s", id)
}

// exec opens a session where the login leads: beside a process that runs, in a task,
// or among what a crashed instance left.
func (c *connection) exec(ctx context.Context, spec runtime.ExecSpec) (runtime.Session, error) {
	switch {
	case c.g.task && (spec.Kind == runtime.ExecSocket || spec.Kind == runtime.ExecFiles):
		return nil, errTask
	case c.g.task:
		return c.s.c.Instances.Attach(ctx, c.g.process.GUID, spec)
	case c.g.crashed != "" && spec.Kind == runtime.ExecSocket:
		return nil, errCrashed
	case c.g.crashed != "":
		return c.s.c.Instances.ExecCrashed(ctx, c.g.crashed, c.g.sidecar, spec)
	}
	return c.s.c.Instances.Exec(ctx, c.g.target(), spec)
}
