package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
	"github.com/dewrun/dew/runtime/containerd/runfile"
	"github.com/dewrun/dew/runtime/process"
)

// Context is the environment that a session shares with the process next to it.
type Context struct {
	Dir   string   `json:"dir"`
	Env   []string `json:"env"`
	Shell string   `json:"shell"`

	User *runtime.User `json:"user,omitempty"` // user of an image app

	Profile bool `json:"-"` // whether profile scripts still have to change the environment
}

// launchPatience is how long a session waits for a process whose profile scripts are
// still running.
const launchPatience = 10 * time.Second

// ContextOf finds the working directory and the environment of a process. /proc
// has the program's real values, after profile scripts and any changes by the start
// command. Sourcing the scripts again could give different values, and some scripts
// start programs.
//
// A program can overwrite its own environment, as programs that set their title do.
// Then only the values from its start are available, and the scripts are sourced.
func (ss *Sessions) ContextOf(ctx context.Context, exec string, pid int) (Context, error) {
	given, err := ReadContext(ss.cfg.Dir, exec)
	if err != nil {
		return given, err
	}
	ctx, cancel := context.WithTimeout(ctx, launchPatience)
	defer cancel()
	for wait := time.Millisecond; process.Launching(pid, ocispec.InitPath); wait = min(2*wait, 50*time.Millisecond) {
		if process.Sleep(ctx, wait) != nil {
			given.Profile = true
			return given, nil
		}
	}
	pids, err := ss.cfg.Cgroups.Procs(ss.cfg.Instance, exec)
	if err != nil {
		return given, err
	}
	for _, pid := range process.Chain(pid, pids) {
		env, ok := process.Environ(pid)
		if !ok {
			continue
		}
		given.Env = env
		if dir, err := os.Readlink(process.File(pid, "cwd")); err == nil && filepath.IsAbs(dir) && !strings.HasSuffix(dir, " (deleted)") {
			given.Dir = dir
		}
		return given, nil
	}
	given.Profile = true
	return given, nil
}

func contextFile(dir, exec string) string { return filepath.Join(dir, exec+".given") }

// WriteContext stores the settings that a process is started with, in the folder of its
// instance, for the next daemon.
func WriteContext(dir string, p runtime.ProcessSpec, shell string) error {
	b, err := json.Marshal(Context{Dir: p.Dir, Env: p.Env, Shell: shell, User: p.User})
	if err != nil {
		return fmt.Errorf("cannot encode the start settings of a process: %w", err)
	}
	return runfile.Write(contextFile(dir, p.Exec), string(b), 0o600)
}

// ReadContext reads the settings that a process was started with.
func ReadContext(dir, exec string) (Context, error) {
	s := Context{Dir: "/"}
	b, err := os.ReadFile(contextFile(dir, exec))
	if errors.Is(err, fs.ErrNotExist) { // started by a dewd that did not write the file
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("cannot read the start settings of %s: %w", exec, err)
	}
	return s, nil
}
