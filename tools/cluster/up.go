package main

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	controlCommand = "run-control"
	folderPrefix   = "dew-kubernetes-"
	maxNodes       = 9
	maxSocketPath  = 107 // the limit of the kernel
)

// up runs outside of the namespaces. It starts process 1 of the control plane in them,
// forwards signals to it, and removes cgroups and files after it has exited.
func up(args []string) error {
	s, err := readFlags(args)
	if err != nil {
		return err
	}
	sweep()
	lock, err := prepare(s)
	if err != nil {
		return err
	}
	defer lock.Close()
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
	flags.DurationVar(&s.Timeout, "timeout", 4*time.Minute, "")
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
	s.Cgroup = folderPrefix + strings.ToLower(rand.Text()[:8])
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
	if socket := s.socket(nodeName(s.Nodes)); len(socket) > maxSocketPath {
		return fmt.Errorf("the path of the socket %s is longer than %d characters: choose another --dir", socket, maxSocketPath)
	}
	return nil
}

// prepare creates the cgroups of the cluster and its folder. The lock is held until the
// file is closed.
func prepare(s *settings) (*os.File, error) {
	for _, program := range []string{"kubernetes", "pause"} {
		if _, err := os.Stat(s.program(program)); err != nil {
			return nil, fmt.Errorf("the program %s is not beside cluster: %w\nBuild it with .ci/k8stest build", program, err)
		}
	}
	for _, node := range s.nodeNames() {
		if err := makeCgroups(filepath.Join(s.Cgroup, node)); err != nil {
			return nil, errors.Join(err, removeCgroups(s.Cgroup))
		}
	}
	lock, err := lockCgroup(s.Cgroup)
	if err == nil {
		err = makeFolders(s)
	}
	if err != nil {
		return nil, errors.Join(err, removeCgroups(s.Cgroup))
	}
	return lock, nil
}

func makeFolders(s *settings) error {
	if err := os.MkdirAll(filepath.Dir(s.Dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return fmt.Errorf("cannot create the folder of the cluster: %w\nIf a cluster runs there, stop it or choose another --dir", err)
	}
	if err := os.MkdirAll(s.Logs, 0o755); err != nil {
		return err
	}
	return s.store()
}

// remove removes the files and cgroups of a cluster whose processes have exited.
func remove(s *settings) {
	if err := errors.Join(removeCgroups(s.Cgroup), os.RemoveAll(s.Dir)); err != nil {
		fmt.Fprintln(os.Stderr, "cluster: cannot remove all of the cluster:", err)
	}
}

// sweep removes what clusters left that were killed. A running cluster has a lock on its
// cgroup. Process IDs do not tell: this can be another PID namespace.
func sweep() {
	names := map[string]bool{}
	for _, h := range hierarchies() {
		found, _ := filepath.Glob(filepath.Join(h.path, folderPrefix+"*"))
		for _, folder := range found {
			names[filepath.Base(folder)] = true
		}
	}
	for name := range names {
		lock, err := lockCgroup(name)
		if err != nil {
			continue
		}
		// If it fails, the next start tries again.
		_ = errors.Join(os.RemoveAll(filepath.Join(os.TempDir(), name)), removeCgroups(name))
		lock.Close()
	}
}

// lockCgroup locks a cgroup until the file is closed, or the process exits.
func lockCgroup(name string) (*os.File, error) {
	all := hierarchies()
	if len(all) == 0 {
		return nil, errors.New("this machine has no cgroups")
	}
	folder, err := os.Open(filepath.Join(all[0].path, name))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		folder.Close()
		return nil, fmt.Errorf("cannot lock the cgroup %s: %w", name, err)
	}
	return folder, nil
}
