package sshd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// login is a parsed username: the target that a client wants to enter.
type login struct {
	guid    string // of a process, of an app (its web process), or of a task
	index   int
	task    bool               // guid is the guid of a task, and there is no index
	crashed runtime.InstanceID // not empty: the login is for its files, and there is no index
	sidecar string             // the sidecar to enter; empty: the process itself
}

const (
	loginPrefix = "cf:"
	maxGUID     = 128
	maxIndex    = 1 << 20
)

// errTask is the error for everything except the one session of a task.
var errTask = errors.New("a task has a single session, which runs its command: copying files and port forwarding are not possible")

var errLogin = errors.New("the user name must be cf:<guid of a process or app>/<index>")

// taskLogin replaces the index in a login to a task: cf:<guid of a task>/task.
const taskLogin = "task"

// parseLogin parses cf:<guid>/<index> and dew's own formats
// cf:<guid>/<index>/<sidecar>, cf:<guid>/crashed-<instance> and cf:<guid>/task.
func parseLogin(user string) (login, error) {
	rest, ok := strings.CutPrefix(user, loginPrefix)
	guid, rest, cut := strings.Cut(rest, "/")
	index, sidecar, named := strings.Cut(rest, "/")
	if !ok || !cut || !validGUID(guid) || named && sidecar == "" {
		return login{}, errLogin
	}
	if id, ok := parseCrashed(index); ok {
		return login{guid: guid, crashed: id, sidecar: sidecar}, nil
	}
	if index == taskLogin && !named {
		return login{guid: guid, task: true}, nil
	}
	n, err := strconv.ParseUint(index, 10, 32)
	if err != nil || n > maxIndex || strconv.FormatUint(n, 10) != index {
		return login{}, errLogin
	}
	return login{guid: guid, index: int(n), sidecar: sidecar}, nil
}

func validGUID(s string) bool {
	if s == "" || len(s) > maxGUID {
		return false
	}
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// grant is the target that a connection can enter.
type grant struct {
	who     auth.Principal
	app     app.App
	process app.Process
	index   int
	task    bool               // process is that of a task: only its guid and app are set
	crashed runtime.InstanceID // not empty: the crashed instance
	sidecar string
}

func (g grant) instanceKey() instanceKey {
	return instanceKey{process: g.process.GUID, index: g.index, task: g.task, crashed: g.crashed}
}

func (g grant) target() runtime.ExecTarget {
	return runtime.ExecTarget{Process: g.process.GUID, Index: g.index, Sidecar: g.sidecar}
}

type grantKey struct{}

// authenticate checks a username and a one-time code, and returns a grant. For a wrong
// code it gives no reason. With a valid code, the client gets the reason of a refusal.
func (s *Server) authenticate(meta ssh.ConnMetadata, code []byte) (*ssh.Permissions, error) {
	to, err := parseLogin(meta.User())
	if err != nil {
		return nil, err
	}
	who, err := s.c.Redeem(string(code))
	if err != nil {
		return nil, fmt.Errorf("cannot log in %s: %w", meta.User(), err)
	}
	g, err := s.grant(who, to)
	s.record(g, meta.RemoteAddr().String(), err)
	if err != nil {
		return nil, &ssh.BannerError{Err: fmt.Errorf("cannot log in %s to %s: %w", who.Name, meta.User(), err), Message: "dew: " + err.Error() + "\r\n"}
	}
	return &ssh.Permissions{ExtraData: map[any]any{grantKey{}: g}}, nil
}

// errNoProcess is the error both for a process that does not exist and for one that the
// user cannot see.
var errNoProcess = errors.New("the process does not exist, or you are not allowed to use SSH with it")

// grant finds the target of a login and checks whether the user can enter it.
func (s *Server) grant(who auth.Principal, to login) (grant, error) {
	g := grant{who: who, index: to.index, task: to.task, crashed: to.crashed, sidecar: to.sidecar}
	var err error
	if g.process, err = s.process(to); err == nil {
		g.app, err = s.c.Registry.App(g.process.App)
	}
	if errors.Is(err, app.ErrNotFound) {
		return g, errNoProcess
	}
	if err != nil {
		return g, err
	}
	if err := s.c.Allow(who, g.app); err != nil {
		return g, err
	}
	if g.crashed != "" {
		files, err := s.crashFiles(g.process.GUID, g.crashed)
		g.index = files.Slot.Index
		return g, err
	}
	if g.task { // opening the session checks whether the task waits for one
		return g, nil
	}
	if _, err := s.instance(g.instanceKey()); err != nil {
		return g, err
	}
	return g, nil
}

// process returns the process that a login names. For a task it has the task's guid and
// app.
func (s *Server) process(to login) (app.Process, error) {
	if !to.task {
		return s.c.Registry.Process(to.guid)
	}
	t, err := s.c.Registry.Task(to.guid)
	return app.Process{GUID: t.GUID, App: t.App, Type: "task"}, err
}

// stillAllowed returns an error if a logged-in user has lost the permission.
func (s *Server) stillAllowed(g grant) error {
	a, err := s.c.Registry.App(g.app.GUID)
	if errors.Is(err, app.ErrNotFound) {
		return errNoProcess
	}
	if err != nil {
		s.log.Warn("cannot check whether the user still has access", "app", g.app.GUID, "err", err)
		return nil // the next check repeats it
	}
	return s.c.Allow(g.who, a)
}

// runs reports whether an instance is still running.
func (s *Server) runs(process string, id runtime.InstanceID) bool {
	return slices.ContainsFunc(s.c.Instances.Instances(process), func(st runtime.Status) bool {
		return st.Instance == id && st.State == runtime.Running
	})
}

// instance returns the running instance at a place.
func (s *Server) instance(at instanceKey) (runtime.InstanceID, error) {
	switch {
	case at.crashed != "":
		return "", errCrashed
	case at.task:
		return "", errTask
	}
	var id runtime.InstanceID
	for _, st := range s.c.Instances.Instances(at.process) {
		if st.Slot.Index == at.index && st.State == runtime.Running {
			id = st.Instance // the newest generation is the last
		}
	}
	if id == "" {
		return "", fmt.Errorf("instance %d is not running. It may be restarting: try again in a moment", at.index)
	}
	return id, nil
}

// record records the access in the log of the app and in the audit events.
func (s *Server) record(g grant, peer string, err error) {
	if g.app.GUID == "" {
		return
	}
	if s.c.Record != nil {
		s.c.Record(Access{Who: g.who, App: g.app, Type: g.process.Type, Index: g.index, Peer: peer, Err: err})
	}
	if err != nil {
		return
	}
	line := logstream.Envelope{
		Source: logstream.Source{Type: "SSH", Index: g.index}, Stream: logstream.Out,
		Text: []byte("Successful remote access by " + peer),
	}
	if err := s.c.Append(g.app.GUID, line); err != nil {
		s.log.Warn("cannot write to the app's log", "app", g.app.GUID, "err", err)
	}
}
