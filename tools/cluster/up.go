package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	controlCommand = "run-control"
	folderPrefix   = "dew-kubernetes-"
	maxNodes       = 9
)

// up runs outside of the namespaces. It starts process 1 of the control plane in them,
// forwards signals to it, and removes cgroups and files after it has exited.
func up(args []string) error {
	s, err := readFlags(args)
	if err != nil {
		return err
	}
	sweep()
	if err := prepare(s); err != nil {
		return err
	}
	defer remove(s)
	// Parent death signals are sent when the thread that started the process exits.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	cmd := exec.Command(s.program("cluster"), controlCommand, s.Dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot create namespaces: %w", err)
	}
	if err := os.WriteFile(s.path("pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig) // it could have exited already
		}
	}()
	err = cmd.Wait()
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		code := exit.ExitCode()
		if code < 0 { // killed
			code = failed
		}
		return exitCode(code)
	}
	return err
}

func readFlags(args []string) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flags.StringVar(&s.Dir, "dir", "", "")
	flags.StringVar(&s.Logs, "logs", "", "")
	flags.StringVar(&s.Stack, "stack", "", "")
	flags.IntVar(&s.Nodes, "nodes", 1, "")
	if err := flags.Parse(args); err != nil {
		return nil, exitCode(2)
	}
	s.Command = flags.Args()
	if os.Geteuid() != 0 {
		return nil, errors.New("namespaces need root: run it with sudo")
	}
	if s.Nodes < 1 || s.Nodes > maxNodes {
		return nil, fmt.Errorf("--nodes must be between 1 and %d, not %d", maxNodes, s.Nodes)
	}
	s.Cgroup = folderPrefix + strconv.Itoa(os.Getpid())
	if s.Dir == "" {
		s.Dir = filepath.Join(os.TempDir(), s.Cgroup)
	}
	if s.Logs == "" {
		s.Logs = filepath.Join(s.Dir, "logs")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.Programs = filepath.Dir(self)
	return s, s.absolute()
}

// absolute makes the paths absolute, and checks that nodes can see them: a node has its
// own /run and /var.
func (s *settings) absolute() error {
	for _, path := range []*string{&s.Dir, &s.Logs, &s.Programs, &s.Stack} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(abs, "/run/") || strings.HasPrefix(abs, "/var/") {
			return fmt.Errorf("%s is below /run or /var, which nodes cannot see: choose another folder", abs)
		}
		*path = abs
	}
	return nil
}

// prepare creates the folder of the cluster and its cgroups.
func prepare(s *settings) error {
	for _, program := range []string{"kubernetes", "pause"} {
		if _, err := os.Stat(s.program(program)); err != nil {
			return fmt.Errorf("the program %s is not beside cluster: %w\nBuild them with .ci/k8stest build", program, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(s.Dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return fmt.Errorf("cannot create the folder of the cluster: %w\nIf a cluster runs there, stop it or choose another --dir", err)
	}
	if err := os.MkdirAll(s.Logs, 0o755); err != nil {
		return err
	}
	for _, node := range s.nodeNames() {
		if err := makeCgroups(filepath.Join(s.Cgroup, node)); err != nil {
			removeCgroups(s.Cgroup)
			return err
		}
	}
	return s.store()
}

// remove removes the files and cgroups of a cluster whose processes have exited.
func remove(s *settings) {
	removeCgroups(s.Cgroup)
	if err := os.RemoveAll(s.Dir); err != nil {
		fmt.Fprintln(os.Stderr, "cluster: cannot remove the folder of the cluster:", err)
	}
}

// sweep removes what clusters left that were killed. The name of their folder and
// cgroup has the process ID.
func sweep() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, root := range cgroupRoots() {
		found, _ := filepath.Glob(filepath.Join(root, folderPrefix+"*"))
		folders = append(folders, found...)
	}
	for _, folder := range folders {
		name := filepath.Base(folder)
		pid, err := strconv.Atoi(strings.TrimPrefix(name, folderPrefix))
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		removeCgroups(name)
		_ = os.RemoveAll(filepath.Join(os.TempDir(), name)) // the next start tries again
	}
}

// cgroupRoots returns the mount points of all cgroup hierarchies.
func cgroupRoots() (roots []string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") {
			roots = append(roots, f[1])
		}
	}
	return roots
}

// makeCgroups creates a cgroup in every hierarchy. kubelet creates those of Pods below it.
func makeCgroups(path string) error {
	for _, root := range cgroupRoots() {
		dir := root
		for part := range strings.SplitSeq(path, "/") {
			if err := delegate(dir); err != nil {
				return err
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return fmt.Errorf("cannot create a cgroup: %w", err)
			}
			if err := inheritCPUs(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate enables all controllers of cgroup v2 for the children of a cgroup.
func delegate(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil //nolint:nilerr // cgroup v1 has no such file
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			return fmt.Errorf("cannot enable the cgroup controller %s: %w", controller, err)
		}
	}
	return nil
}

// inheritCPUs copies the processors of the parent: a new cpuset of cgroup v1 has none,
// and processes cannot join it.
func inheritCPUs(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			continue
		}
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(own)) != "" || strings.TrimSpace(string(value)) == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes a cgroup and those below it from every hierarchy.
func removeCgroups(path string) {
	for _, root := range cgroupRoots() {
		top := filepath.Join(root, path)
		// The kernel can take a moment until a cgroup of killed processes is empty.
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
			if removeCgroup(top) {
				break
			}
		}
	}
}

func removeCgroup(top string) bool {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		_ = syscall.Rmdir(dir) // checked below
	}
	_, err := os.Stat(top)
	return errors.Is(err, os.ErrNotExist)
}
