package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is dew-init as it is shipped, built once for all tests.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "dew-init-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "dew-init")
	status := 1
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

func build() error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build dew-init: %w\n%s", err, out)
	}
	return nil
}

// result is the result of a run of dew-init.
type result struct {
	status int
	stdout string
	stderr string
}

// start runs dew-init in dir with its gate as stdin, until it exits.
func start(t *testing.T, dir, gate string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Stdin = bytes.NewReader([]byte(gate))
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LANG=C", "GREETING=hello  world"}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("cannot run dew-init: %v", err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string // first line of stderr
	}{
		{"unknown command", []string{"lunch"}, "dew-init: unknown command lunch\n"},
		{"too much for init", []string{"init", "now"}, "dew-init: now needs a value\n"},
		{"no guard", []string{"init", "--main", "/x"}, "dew-init: init needs either no arguments, or all options and a process after --\n"},
		{"no command", []string{"launch"}, "dew-init: the command after -- is missing\n"},
		{"nothing after the dashes", []string{"launch", "--"}, "dew-init: the command after -- is missing\n"},
		{"unknown option", []string{"launch", "--sehll", "/bin/sh", "--", "true"}, "dew-init: unknown option --sehll\n"},
		{"no dashes", []string{"launch", "true"}, "dew-init: unknown option true\n"},
		{"shell without path", []string{"launch", "--shell", "--", "true"}, "dew-init: --shell needs a path\n"},
		{"several commands", []string{"launch", "--", "echo", "a"}, "dew-init: the command must be one argument (use --exec for several arguments)\n"},
		{"exec and shell", []string{"launch", "--exec", "--shell", "/bin/sh", "--", "true"}, "dew-init: --exec runs no shell and cannot be combined with other options\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := start(t, t.TempDir(), "x", tt.args...)
			if want := (result{status: exitUsage, stderr: tt.want + usage}); got != want {
				t.Errorf("result = %+v, want %+v", got, want)
			}
		})
	}
}

// The program must run on a stack without any library.
func TestStatic(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"fmt", "net", "log", "flag", "os/exec"} {
		if bytes.Contains(out, []byte("\n"+heavy+"\n")) {
			t.Errorf("dew-init imports %s, which makes every container larger", heavy)
		}
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("dew-init needs a dynamic linker")
		}
	}
}
