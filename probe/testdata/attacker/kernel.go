package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func registerKernel() {
	attempts["mount"] = func(url.Values) string { return result(unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "")) }
	attempts["bind"] = func(url.Values) string { return result(unix.Mount("/tmp", "/usr", "", unix.MS_BIND, "")) }
	attempts["remount"] = func(url.Values) string {
		return all(result(unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND, "")), result(unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "")))
	}
	attempts["unmount"] = func(url.Values) string { return result(unix.Unmount("/proc/kcore", unix.MNT_DETACH)) }
	attempts["newmount"] = func(url.Values) string {
		_, err := unix.Fsopen("tmpfs", 0)
		_, tree := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
		return all(result(err), result(tree))
	}
	attempts["userns"] = func(url.Values) string { return cloned(unix.CLONE_NEWUSER) }
	attempts["namespaces"] = func(url.Values) string {
		return all(cloned(unix.CLONE_NEWNS), cloned(unix.CLONE_NEWNET), cloned(unix.CLONE_NEWPID), cloned(unix.CLONE_NEWCGROUP))
	}
	attempts["setns"] = func(url.Values) string {
		fd, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY, 0)
		if err == nil {
			err = unix.Setns(fd, 0)
		}
		return result(err)
	}
	attempts["chroot"] = func(url.Values) string {
		return all(result(unix.Chroot("/tmp")), result(unix.PivotRoot("/tmp", "/tmp")))
	}
	attempts["root"] = func(url.Values) string {
		return all(result(syscall.Setuid(0)), result(syscall.Setgid(0)), result(syscall.Setgroups([]int{0})))
	}
	attempts["capabilities"] = func(url.Values) string { return capabilities() }
	attempts["setuid"] = func(url.Values) string { return setuidProgram() }
	attempts["ptrace"] = func(url.Values) string { return ptraceInit() }
	attempts["kill"] = func(url.Values) string {
		return all(result(unix.Kill(1, unix.SIGKILL)), result(unix.Kill(1, unix.SIGSTOP)))
	}
	attempts["modules"] = func(url.Values) string {
		return all(result(unix.InitModule([]byte{0}, "")), result(unix.DeleteModule("x", 0)))
	}
	attempts["kexec"] = func(url.Values) string {
		return all(call(unix.SYS_KEXEC_LOAD), call(unix.SYS_REBOOT, 0xfee1dead, 672274793, 0))
	}
	attempts["keyring"] = func(url.Values) string {
		_, err := unix.AddKey("user", "dew-probe", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
		_, other := unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_USER_KEYRING, 0, 0, 0)
		return all(result(err), result(other))
	}
	attempts["bpf"] = func(url.Values) string {
		var attr [128]byte
		return call(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), uintptr(len(attr)))
	}
	attempts["perf"] = func(url.Values) string {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
		return call(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&attr)), ^uintptr(0), 0, ^uintptr(0), 0)
	}
	attempts["userfaultfd"] = func(url.Values) string { return call(unix.SYS_USERFAULTFD, 0) }
	attempts["uring"] = func(url.Values) string {
		var params [120]byte
		return call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)))
	}
	attempts["handle"] = func(url.Values) string {
		h := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0}) // the root folder of a file system
		fd, err := unix.Open("/", unix.O_RDONLY, 0)
		if err != nil {
			return "cannot open /: " + result(err)
		}
		_, err = unix.OpenByHandleAt(fd, h, unix.O_RDONLY)
		return result(err)
	}
	attempts["dmesg"] = func(url.Values) string {
		_, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 4096))
		return result(err)
	}
	attempts["clock"] = func(url.Values) string {
		return all(result(unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: 1})), result(unix.Sethostname([]byte("probe"))))
	}
	attempts["priority"] = func(url.Values) string {
		return all(result(unix.Setpriority(unix.PRIO_PROCESS, 0, -20)), result(unix.Setrlimit(unix.RLIMIT_NICE, &unix.Rlimit{Cur: 40, Max: 40})))
	}
	attempts["fds"] = func(url.Values) string { return strings.Join(inherited, " ") }
	attempts["processes"] = func(url.Values) string { return processes() }
	attempts["shm"] = func(q url.Values) string {
		key, err := strconv.Atoi(q.Get("key"))
		if err != nil {
			return err.Error()
		}
		_, err = unix.SysvShmGet(key, 1, 0)
		return result(err)
	}
}

// cloned starts a child in new namespaces.
func cloned(flags uintptr) string {
	cmd := exec.Command("/proc/self/exe", "child")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return result(cmd.Run())
}

// capabilities returns the sets of this process that are not empty.
func capabilities() string {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if strings.HasPrefix(name, "Cap") && strings.Trim(value, "0") != "" {
			out = append(out, name+" "+value)
		}
		if name == "NoNewPrivs" && value != "1" || name == "Seccomp" && value != "2" {
			out = append(out, name+" "+value)
		}
	}
	if len(out) > 0 {
		return strings.Join(out, ", ")
	}
	return "none"
}

// setuidProgram starts a program with the setuid bit and returns its effective user.
func setuidProgram() string {
	for _, name := range []string{"/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode()&os.ModeSetuid == 0 {
			continue
		}
		cmd := exec.Command(name)
		cmd.Args = []string{name, "-c", "grep Uid /proc/self/status"}
		stdin, err := cmd.StdinPipe() // it waits for a password
		if err != nil {
			return err.Error()
		}
		if err := cmd.Start(); err != nil {
			return result(err)
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "Uid:" {
				return "effective user " + f[2]
			}
		}
		return "no user in " + string(b)
	}
	return "no program with the setuid bit"
}

// ptraceInit tries three ways into the memory of dew-init.
func ptraceInit() string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attached := result(unix.PtraceAttach(1))
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	_, err := unix.ProcessVMReadv(1, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	_, mem := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
	return all(attached, result(err), result(mem))
}

// processes lists the programs of all visible processes.
func processes() string {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil {
			out = append(out, strings.TrimSpace(string(b)))
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), " ")
}
