package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// shells are programs that start the real program, and then wait for it.
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"}

// Chain returns the processes that can be "the app", the most likely one first. A start
// command of several words can leave a shell as the parent of the program. Only the
// program has the variables that the shell exported.
func Chain(leader int, pids []int) []int {
	out := []int{leader}
	for at := leader; isShell(at); {
		var children []int
		for _, pid := range pids {
			if s, ok := ReadStat(Dir(pid)); ok && s.Parent == at {
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
	exe, err := os.Readlink(File(pid, "exe"))
	return err == nil && slices.Contains(shells, filepath.Base(exe))
}

// Environ reads the environment of a process. It returns false if it cannot be read, or
// is not an environment.
func Environ(pid int) ([]string, bool) {
	b, err := os.ReadFile(File(pid, "environ"))
	if err != nil {
		return nil, false
	}
	return parseEnviron(b)
}

// parseEnviron splits the kernel's data into variables. An item that is not a variable
// means that the process has overwritten its environment.
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
		// The container service accepts only UTF-8. A value with other bytes is left
		// out completely, because a part of it would be a different value.
		if utf8.Valid(item) {
			env = append(env, string(item))
		}
	}
	return env, len(env) > 0
}
