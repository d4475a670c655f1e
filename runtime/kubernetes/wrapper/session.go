package wrapper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime/kubernetes/link"
	"github.com/dewrun/dew/runtime/process"
)

// program is a program that a session helper runs.
type program struct {
	Args []string  `json:"args"`
	Dir  string    `json:"dir"`
	Env  []string  `json:"env"`
	TTY  bool      `json:"tty"`
	Size link.Size `json:"size"`
}

// launchPatience is how long a session waits for a process whose profile scripts are
// still running.
const launchPatience = 10 * time.Second

// handleSession runs a session in a process of its own. All processes of the session
// are below that process, so that a signal to the command does not reach them.
func (w *wrapper) handleSession(rw http.ResponseWriter, r *http.Request) {
	k, b, err := link.ReadFrame(r.Body, nil)
	var s link.Session
	if err == nil && k == link.KindSpec {
		err = json.Unmarshal(b, &s)
	}
	if err != nil || k != link.KindSpec {
		link.Fail(rw, http.StatusBadRequest, errors.Join(errors.New("the session has no settings"), err))
		return
	}
	ours, theirs, err := link.SocketPair()
	if err != nil {
		link.Fail(rw, http.StatusConflict, err)
		return
	}
	defer func() { _ = ours.Close() }() // the session has ended
	ended, err := w.startHelper(theirs)
	if err == nil {
		err = link.NewFrames(ours).JSON(link.KindSpec, w.programOf(r.Context(), s))
	}
	if err != nil {
		link.Fail(rw, http.StatusConflict, err)
		return
	}
	in, out := link.Answer(rw, r)
	stop := context.AfterFunc(r.Context(), func() { _ = ours.Close() })
	defer stop()
	go func() {
		_, _ = io.Copy(ours, in) // the end of the request ends it
		_ = ours.CloseWrite()
	}()
	_, _ = io.Copy(out, ours)
	<-ended
}

// startHelper starts a session helper with the connection as file 3, and closes the
// connection here. The channel is closed when the helper has exited.
func (w *wrapper) startHelper(conn interface {
	File() (*os.File, error)
	Close() error
},
) (<-chan struct{}, error) {
	f, err := conn.File()
	_ = conn.Close() // f is a copy
	if err != nil {
		return nil, err
	}
	defer f.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaving {
		return nil, errors.New("the instance is stopping")
	}
	result := make(chan result, 1)
	pid, err := w.children.start(w.cfg.Session, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{null.Fd(), null.Fd(), os.Stderr.Fd(), f.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	}, result)
	if err != nil {
		return nil, fmt.Errorf("cannot start the session: %w", err)
	}
	w.helpers[pid] = true
	ended := make(chan struct{})
	go func() {
		<-result
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.helpers, pid)
		close(ended)
	}()
	return ended, nil
}

// programOf finds the working directory and the environment that a session shares with
// the command. /proc has the values of the running program, after profile scripts and
// changes by the start command.
func (w *wrapper) programOf(ctx context.Context, s link.Session) program {
	w.mu.Lock()
	child, running := w.child, w.started && w.exit == nil
	w.mu.Unlock()
	p := program{Args: append([]string{w.cfg.Init}, s.Profile...), Dir: s.Dir, Env: s.Given, TTY: s.TTY, Size: s.Size}
	if running {
		ctx, cancel := context.WithTimeout(ctx, launchPatience)
		defer cancel()
		for wait := time.Millisecond; process.Launching(child, w.cfg.Init); wait = min(2*wait, 50*time.Millisecond) {
			if process.Sleep(ctx, wait) != nil {
				break
			}
		}
		for _, pid := range process.Chain(child, w.processes()) {
			env, ok := process.Environ(pid)
			if !ok {
				continue
			}
			p.Args, p.Env = append([]string{w.cfg.Init}, s.Args...), env
			if dir, err := os.Readlink(process.File(pid, "cwd")); err == nil && filepath.IsAbs(dir) && !strings.HasSuffix(dir, " (deleted)") {
				p.Dir = dir
			}
			break
		}
	}
	p.Env = mergeEnv(p.Env, s.Env)
	return p
}

// mergeEnv returns base without the variables of over, and then those.
func mergeEnv(base, over []string) []string {
	names := map[string]bool{}
	for _, kv := range over {
		name, _, _ := strings.Cut(kv, "=")
		names[name] = true
	}
	var out []string
	for _, kv := range base {
		if name, _, _ := strings.Cut(kv, "="); !names[name] {
			out = append(out, kv)
		}
	}
	return append(out, over...)
}
