package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// shells are programs that start the real one, and then wait for it.
var shells = []string{"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"}

// Chain are the processes that may be meant by "the app", likeliest first: a
// start command of several words may leave a shell in front of the program, and
// what that shell exported only the program shows.
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

// Environ reads the environment of a process; false where there is none, or
// what is there is none.
func Environ(pid int) ([]string, bool) {
	b, err := os.ReadFile(File(pid, "environ"))
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
