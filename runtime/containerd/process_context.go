package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dewrun/dew/runtime"
)

// processContext are what a session shares with the process it is opened beside.
type processContext struct {
	Dir   string   `json:"dir"`
	Env   []string `json:"env"`
	Shell string   `json:"shell"`

	User *runtime.User `json:"user,omitempty"` // of an image app

	profile bool // whether profile scripts have yet to change the environment
}

// launchPatience is how long a session waits for a process whose profile scripts
// still run.
const launchPatience = 10 * time.Second

// processContext finds out where and with which environment a process runs. The
// kernel knows: after profile scripts, and after whatever else the start command
// did, /proc tells what the program itself was given. Sourcing the scripts again
// would not do: they may give another answer now, and some of them start things.
//
// A program can write over its own environment (those that set their title do).
// Then what it was started with is all there is, and the scripts are sourced.
func (c *container) processContext(ctx context.Context, p *proc) (processContext, error) {
	given, err := c.startContext(p)
	if err != nil {
		return given, err
	}
	ctx, cancel := context.WithTimeout(ctx, launchPatience)
	defer cancel()
	for wait := time.Millisecond; launching(p.pid); wait = min(2*wait, 50*time.Millisecond) {
		if pause(ctx, wait) != nil {
			given.profile = true
			return given, nil
		}
	}
	pids, err := c.e.cg.procs(c.spec.Instance, p.Exec)
	if err != nil {
		return given, err
	}
	for _, pid := range chain(p.pid, pids) {
		env, ok := environOf(pid)
		if !ok {
			continue
		}
		given.Env = env
		if dir, err := os.Readlink(procFile(pid, "cwd")); err == nil && filepath.IsAbs(dir) && !strings.HasSuffix(dir, " (deleted)") {
			given.Dir = dir
		}
		return given, nil
	}
	given.profile = true
	return given, nil
}

func (c *container) startContextFile(exec string) string { return filepath.Join(c.dir, exec+".given") }

// saveStartContext writes down what a process is started with: the next daemon does not
// know it otherwise.
func (c *container) saveStartContext(p *proc) error {
	b, err := json.Marshal(processContext{Dir: p.Dir, Env: p.Env, Shell: c.spec.Stack.Shell, User: p.User})
	if err != nil {
		return fmt.Errorf("cannot encode surroundings: %w", err)
	}
	return writeFile(c.startContextFile(p.Exec), string(b), 0o600)
}

// startContext reads what a process was started with.
func (c *container) startContext(p *proc) (processContext, error) {
	s := processContext{Dir: "/"}
	b, err := os.ReadFile(c.startContextFile(p.Exec))
	if errors.Is(err, fs.ErrNotExist) { // started by a dewd that did not write it
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("cannot read what %s was started with: %w", p.Exec, err)
	}
	return s, nil
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// launching tells a launcher that has not become the command yet: the container
// runtime, which says that a process is there before it has become dew-init; dew-init
// itself; or the shell that sources profile scripts for it.
func launching(pid int) bool {
	if exe, err := os.Readlink(procFile(pid, "exe")); err == nil && exe == initPath {
		return true
	}
	b, err := os.ReadFile(procFile(pid, "cmdline"))
	if err != nil {
		return false
	}
	args := bytes.Split(b, []byte{0})
	if len(args) > 1 && string(args[1]) == "init" && ofRuntime(pid) {
		return true
	}
	return len(args) > 3 && string(args[3]) == "dew-init" && string(args[1]) == "-c"
}

// ofRuntime tells a process by the variables that runc gives its own.
func ofRuntime(pid int) bool {
	env, ok := environOf(pid)
	return ok && slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "_LIBCONTAINER_INITPIPE=") })
}

// shells are programs that start the real one, and then wait for it.
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"}

// chain are the processes that may be meant by "the app", likeliest first: a
// start command of several words may leave a shell in front of the program, and
// what that shell exported only the program shows.
func chain(leader int, pids []int) []int {
	out := []int{leader}
	for at := leader; isShell(at); {
		var children []int
		for _, pid := range pids {
			if s, ok := readStat(procDir(pid)); ok && s.parent == at {
				children = append(children, pid)
			}
		}
		if len(children) != 1 || slices.Contains(out, children[0]) {
			break
		}
		at = children[0]
		out = append(out, at)
	}
	slices.Reverse(out)
	return out
}

func isShell(pid int) bool {
	exe, err := os.Readlink(procFile(pid, "exe"))
	return err == nil && slices.Contains(shells, filepath.Base(exe))
}

// environOf reads the environment of a process; false where there is none, or
// what is there is none.
func environOf(pid int) ([]string, bool) {
	b, err := os.ReadFile(procFile(pid, "environ"))
	if err != nil {
		return nil, false
	}
	return parseEnviron(b)
}

// parseEnviron cuts what the kernel shows into variables. Anything in it that is
// no variable means that the process wrote over it.
func parseEnviron(b []byte) ([]string, bool) {
	var env []string
	for item := range bytes.SplitSeq(b, []byte{0}) {
		if len(item) == 0 {
			continue
		}
		name, _, ok := bytes.Cut(item, []byte{'='})
		if !ok || len(name) == 0 {
			return nil, false
		}
		// The container service takes text alone. A value that is none is left out
		// whole: half of it would be another value.
		if utf8.Valid(item) {
			env = append(env, string(item))
		}
	}
	return env, len(env) > 0
}

var _ runtime.Session = (*session)(nil)
