package stack

import (
	"context"
	"os/exec"
	"syscall"
)

// confined returns a command that runs a program as the first process of a new PID
// namespace, in a new mount namespace. When that process exits, the kernel kills its
// children and drops its mounts. The process is killed when ctx is done. The kernel
// kills it when dewd exits, even by kill -9.
//
// The kernel ties this to the thread that starts the command. The caller must keep its
// goroutine locked to its thread until the command has exited.
func confined(ctx context.Context, program string, args ...string) *exec.Cmd {
	// The machine's /proc shows the PIDs of another namespace.
	const script = `mount -t proc proc /proc; exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh", program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID,
		// With Unshareflags instead of Cloneflags, the os package makes all mounts
		// private. Then no mount of the program reaches the machine.
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
		Setpgid:      true, // an interrupt in dewd's terminal must not reach it
	}
	return cmd
}
