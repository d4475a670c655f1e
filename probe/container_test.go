package probe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const inContainer = "Containers"

// tried is a probe whose attempt in the container must have one of some results.
func tried(p Probe, attempt string, args []string, results ...string) attack {
	return attack{p, func(w *target) (string, error) {
		seen, err := w.try(attempt, args...)
		if err != nil {
			return seen, err
		}
		return allowed(seen, results...)
	}}
}

// paths returns arguments of an attempt for several paths.
func paths(all ...string) (args []string) {
	for _, p := range all {
		args = append(args, "path", p)
	}
	return args
}

func containerAttacks() []attack {
	const refused = "the kernel refuses it"
	c := func(name, want, attempt string, args []string, results ...string) attack {
		return tried(Probe{Group: inContainer, Name: name, Want: want}, attempt, args, results...)
	}
	return []attack{
		c("mount a file system", refused, "mount", nil, "EPERM"),
		c("bind a folder over /usr", refused, "bind", nil, "EPERM"),
		c("mount / and /proc/sys again, writable", refused, "remount", nil, "EPERM"),
		c("unmount the cover of /proc/kcore", refused, "unmount", nil, "EPERM"),
		c("use the new system calls for mounts", refused, "newmount", nil, "EPERM"),
		c("create a user namespace", refused, "userns", nil, "EPERM"),
		c("create mount, network, process and cgroup namespaces", refused, "namespaces", nil, "EPERM"),
		c("enter the namespaces of PID 1", refused, "setns", nil, "EACCES", "EPERM"),
		c("change the root folder with chroot and pivot_root", refused, "chroot", nil, "EPERM"),
		c("become root with setuid, setgid and setgroups", refused, "root", nil, "EPERM"),
		c("use a capability", "no set has one; no_new_privs and seccomp are on", "capabilities", nil, "none"),
		c("become root with a setuid program of the stack", "the program runs as the app user", "setuid", nil, "effective user 2000"),
		c("read the memory of dew-init with ptrace, process_vm_readv and /proc/1/mem", refused, "ptrace", nil, "EPERM", "EACCES, EPERM"),
		c("kill or stop dew-init", refused, "kill", nil, "EPERM"),
		c("overwrite the program of PID 1 through /proc/1/exe", refused, "write", paths("/proc/1/exe"), "EACCES"),
		c("read the environment and the root folder of PID 1", refused, "read", paths("/proc/1/environ", "/proc/1/root", "/proc/1/cwd", "/proc/1/maps"), "EACCES"),
		c("load or remove a kernel module", refused, "modules", nil, "EPERM"),
		c("load another kernel, or restart the machine", refused, "kexec", nil, "EPERM"),
		c("use keyrings, which are not per container", refused, "keyring", nil, "EPERM"),
		c("create BPF maps", refused, "bpf", nil, "EPERM"),
		c("open performance events", refused, "perf", nil, "EPERM", "EACCES"),
		c("open a userfaultfd", refused, "userfaultfd", nil, "EPERM"),
		c("open an io_uring", refused, "uring", nil, "EPERM"),
		c("open files of the machine by handle", refused, "handle", nil, "EPERM"),
		c("read the log of the kernel", refused, "dmesg", nil, "EPERM"),
		c("set the clock or the host name", refused, "clock", nil, "EPERM"),
		c("raise the own priority", refused, "priority", nil, "EACCES, EPERM", "EPERM", "EACCES"),
		c("create device nodes for the disk and the memory", refused, "mknod", nil, "EPERM"),
		c("find a device that is not one of the usual seven", "there is none", "devices", nil, "none"),
		c("write to the cgroups, for example a release_agent", "read-only, or not visible", "cgroups", nil,
			"EROFS", "ENOENT", "EACCES", "ENOENT, EROFS", "EACCES, EROFS", "ENOENT, no files", "EROFS, no files", "EACCES, no files"),
		c("write kernel settings, for example core_pattern", "read-only", "write",
			paths("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger"), "EROFS", "EACCES", "EACCES, EROFS", "EACCES, ENOENT", "EACCES, ENOENT, EROFS"),
		c("write below /sys", "read-only", "write", paths("/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run", "/sys/power/state"), "EROFS", "EACCES", "EACCES, EROFS", "ENOENT, EROFS", "EACCES, ENOENT", "EACCES, ENOENT, EROFS"),
		c("read the memory of the kernel in /proc", "the files are masked", "read",
			paths("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kmsg"), "empty", "EACCES", "EPERM", "ENOENT, empty", "EACCES, empty", "EPERM, empty", "EACCES, ENOENT, empty", "ENOENT, EPERM, empty"),
		c("write to the files of the stack", "read-only", "create", paths("/usr/bin", "/usr/lib", "/etc"), "EROFS", "EACCES", "EACCES, EROFS"),
		c("read the captured output of dew below /.dew", refused, "list", paths("/.dew/capture"), "EACCES"),
		c("change the freezer and the programs of dew below /.dew", refused, "write", paths("/.dew/freezer/main", "/.dew/init", "/.dew/sftp"), "EACCES", "EROFS", "EACCES, EROFS"),
		c("use files that dewd or runc left open", "only pipes and /dev/null are open", "fds", nil, "pipe", "/dev/null pipe"),
		{Probe{Group: inContainer, Name: "see processes outside the instance", Want: "only its own processes are visible"}, ownProcesses},
		{Probe{Group: inContainer, Name: "open shared memory of the machine", Want: "it does not exist in the container"}, sharedMemory},
		{Probe{Group: inContainer, Name: "connect to an abstract Unix socket of the machine", Want: "connection refused"}, abstractSocket},
		{Probe{Group: inContainer, Name: "open the store, the keys and the sockets of dewd and containerd", Want: "they do not exist in the container"}, hostFiles},
	}
}

// ownProcesses checks that the app sees itself, so that an empty list does not pass.
func ownProcesses(w *target) (string, error) {
	seen, err := w.try("processes")
	if err != nil {
		return seen, err
	}
	for name := range strings.FieldsSeq(seen) {
		switch name {
		case "attacker", "init", "bash", "sh":
		default:
			return seen, fmt.Errorf("the process %s is visible", name)
		}
	}
	if !strings.Contains(seen, "attacker") {
		return seen, errors.New("the app does not see itself")
	}
	return seen, nil
}

// sharedMemory creates a segment outside of containers that every user can attach.
func sharedMemory(w *target) (string, error) {
	key := os.Getpid() | 0x5f000000
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		return "", err
	}
	defer unix.SysvShmCtl(id, unix.IPC_RMID, nil) //nolint:errcheck // nothing uses it
	seen, err := w.try("shm", "key", strconv.Itoa(key))
	if err != nil {
		return seen, err
	}
	return allowed(seen, "ENOENT")
}

func abstractSocket(w *target) (string, error) {
	name := fmt.Sprintf("@dew-probe-%d", os.Getpid())
	l, err := net.Listen("unix", name)
	if err != nil {
		return "", err
	}
	defer l.Close()
	seen, err := w.try("unix", "to", name)
	if err != nil {
		return seen, err
	}
	return allowed(seen, "ECONNREFUSED")
}

func hostFiles(w *target) (string, error) {
	for _, p := range []string{w.Root, filepath.Join(w.Root, "dew.db"), filepath.Join(w.Run, "dew.sock")} {
		if _, err := os.Stat(p); err != nil {
			return "", err // the probe would prove nothing
		}
	}
	seen, err := w.try("read", paths(w.Root, filepath.Join(w.Root, "dew.db"), filepath.Join(w.Root, "keys"), w.Run, filepath.Join(w.Run, "dew.sock"),
		"/run/containerd/containerd.sock", "/run/docker.sock", "/var/run/docker.sock", "/run/dew/dew.sock", "/root")...)
	if err != nil {
		return seen, err
	}
	return allowed(seen, "ENOENT", "EACCES, ENOENT")
}
