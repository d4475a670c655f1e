package stack

import (
	"context"
	"os/exec"
	"syscall"
)

// confined returns a command that runs a program as the first process of a new PID
// namespace, in a new mount namespace. When that process ends, the kernel kills its
// children and drops its mounts. The process ends with ctx, and the kernel kills it
// when dewd ends, even by kill -9.
//
// The kernel ties this to the thread that starts the command. The caller must keep
// its goroutine locked to its thread until the command has ended.
func confined(ctx context.Context, program string, args ...string) *exec.Cmd {
	// The machine's /proc has the numbers of another PID namespace.
	const script = `mount -t proc proc /proc; exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh", program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID,
		// Unshared, not cloned: then the os package makes all mounts private, and none
		// of the program's reaches the machine.
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
		Setpgid:      true, // an interrupt in dewd's terminal is not for it
	}
	return cmd
}
