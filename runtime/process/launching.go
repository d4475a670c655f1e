package process

import (
	"bytes"
	"os"
	"slices"
	"strings"
)

// Launching reports whether a launcher has not become the command yet. It can be the
// container runtime, which reports a process before that has become dew-init. It can
// also be dew-init itself, which has the path init, or the shell that sources profile scripts for it.
func Launching(pid int, init string) bool {
	if exe, err := os.Readlink(File(pid, "exe")); err == nil && exe == init {
		return true
	}
	b, err := os.ReadFile(File(pid, "cmdline"))
	if err != nil {
		return false
	}
	args := bytes.Split(b, []byte{0})
	if len(args) > 1 && string(args[1]) == "init" && ofRuntime(pid) {
		return true
	}
	return len(args) > 3 && string(args[3]) == "dew-init" && string(args[1]) == "-c"
}

// ofRuntime reports whether a process has the variables that runc gives its own
// processes.
func ofRuntime(pid int) bool {
	env, ok := Environ(pid)
	return ok && slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "_LIBCONTAINER_INITPIPE=") })
}
