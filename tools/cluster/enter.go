package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const execCommand = "exec-inside"

// enter runs a command in the namespaces of a running cluster.
func enter(args []string) error {
	flags := flag.NewFlagSet("enter", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	dir := flags.String("dir", "", "")
	node := flags.String("node", "", "")
	if err := flags.Parse(args); err != nil {
		return exitCode(2)
	}
	s, err := findCluster(*dir)
	if err != nil {
		return err
	}
	pid, err := os.ReadFile(s.path("pid"))
	if err != nil {
		return err
	}
	command := flags.Args()
	if len(command) == 0 {
		command = []string{"/bin/bash"}
	}
	nsenter, err := lookPath("nsenter")
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	inside := append([]string{s.program("cluster"), execCommand, s.Dir, *node, here}, command...)
	argv := append([]string{"nsenter", "--target", strings.TrimSpace(string(pid)), "--mount", "--net", "--uts", "--pid", "--"}, inside...)
	return syscall.Exec(nsenter, argv, os.Environ())
}

// findCluster returns the settings of the cluster in a folder, or of the only one.
func findCluster(dir string) (*settings, error) {
	if dir != "" {
		s, err := loadSettings(dir)
		if err != nil {
			return nil, fmt.Errorf("no cluster runs in %s: %w", dir, err)
		}
		return s, nil
	}
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*", "pid"))
	if len(found) != 1 {
		return nil, fmt.Errorf("%d clusters run: choose one with --dir", len(found))
	}
	return loadSettings(filepath.Dir(found[0]))
}

// execInside is the part of enter in the namespaces of the control plane: it goes on to
// those of a node, or runs the command.
func execInside(dir string, args []string) error {
	s, err := loadSettings(dir)
	if err != nil {
		return err
	}
	node, here, command := args[0], args[1], args[2:]
	if node != "" {
		pid, err := nodePID(s, node)
		if err != nil {
			return err
		}
		nsenter, err := lookPath("nsenter")
		if err != nil {
			return err
		}
		inside := append([]string{s.program("cluster"), execCommand, s.Dir, "", here}, command...)
		argv := append([]string{"nsenter", "--target", fmt.Sprint(pid), "--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid", "--"}, inside...)
		return syscall.Exec(nsenter, argv, os.Environ())
	}
	if err := os.Chdir(here); err != nil {
		return err
	}
	path, err := lookPath(command[0])
	if err != nil {
		return fmt.Errorf("%s: command not found", command[0])
	}
	return syscall.Exec(path, command, s.environment())
}

// nodePID returns the process ID of process 1 of a node.
func nodePID(s *settings, node string) (int, error) {
	all, err := componentsOf(s.socket(controlName))
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.Machine == controlName && c.Name == node && c.PID != 0 {
			return c.PID, nil
		}
	}
	return 0, fmt.Errorf("the node %q does not run: the cluster has %s", node, strings.Join(s.nodeNames(), ", "))
}
