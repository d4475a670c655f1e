package sshd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dewrun/dew/runtime"
)

// crashedPrefix precedes the id of a crashed instance in a login, instead of an index:
// cf:<guid>/crashed-<instance>.
const crashedPrefix = "crashed-"

// errCrashed is the error for forwards to a crashed instance.
var errCrashed = errors.New("cannot forward to a crashed instance: it has no running processes")

// parseCrashed returns the id of a crashed instance, or false if text has none.
func parseCrashed(text string) (runtime.InstanceID, bool) {
	id, ok := strings.CutPrefix(text, crashedPrefix)
	return runtime.InstanceID(id), ok && runtime.InstanceID(id).Valid()
}

// crashFiles returns the stored files of the crashed instance that a login names.
func (s *Server) crashFiles(process string, id runtime.InstanceID) (runtime.CrashFiles, error) {
	for _, files := range s.c.Instances.Crashed(process) {
		if files.Instance == id {
			return files, nil
		}
	}
	return runtime.CrashFiles{}, fmt.Errorf("the files of crashed instance %s are not stored", id)
}

// exec opens a session for a grant: in a running process, in a task, or on the files
// of a crashed instance.
func (s *Server) exec(ctx context.Context, g grant, spec runtime.ExecSpec) (runtime.Session, error) {
	switch {
	case g.task && (spec.Kind == runtime.ExecSocket || spec.Kind == runtime.ExecFiles):
		return nil, errTask
	case g.task:
		return s.c.Instances.Attach(ctx, g.process.GUID, spec)
	case g.crashed != "" && spec.Kind == runtime.ExecSocket:
		return nil, errCrashed
	case g.crashed != "":
		return s.c.Instances.ExecCrashed(ctx, g.crashed, g.sidecar, spec)
	}
	return s.c.Instances.Exec(ctx, g.target(), spec)
}
