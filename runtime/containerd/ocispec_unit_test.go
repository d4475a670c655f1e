package containerd_test

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd/ocispec"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares got with a file of testdata, or writes the file with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, string(want)); diff != "" {
		t.Errorf("%s (-got +want):\n%s", name, diff)
	}
}

func goldenJSON(t *testing.T, name string, got any) {
	t.Helper()
	b, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, name, string(b)+"\n")
}

// madeUpStack returns a stack with one of each kind of entry.
func madeUpStack() stack.Stack {
	return stack.Stack{
		Name: "made-up", ID: "stack-1", Shell: "/bin/bash",
		Mounts: []stack.Mount{
			{Path: "/usr", Type: "bind", Source: "/srv/stack/usr", Options: []string{"rbind", "ro", "nosuid", "nodev"}},
			{Path: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"}},
		},
	}
}

func someBase() ocispec.Base {
	return ocispec.Base{Init: "/var/lib/dew/bin/dew-init", UID: 2000, GID: 2001, Files: 16384, Seccomp: ocispec.NativeArch}
}

func someSpec() runtime.Spec {
	return runtime.Spec{
		Kind: runtime.KindInstance, Instance: someInstance, App: "app-1", Type: "web", Stack: madeUpStack(),
		Memory: 256 << 20, Address: netip.MustParsePrefix("10.201.0.7/20"),
		Processes: []runtime.ProcessSpec{{Exec: runtime.MainExec}},
	}
}

var somePaths = ocispec.Paths{
	Dir:     "/run/dew/instances/" + string(someInstance),
	Netns:   "/run/dew/netns/dew-" + string(someInstance),
	Cgroups: "/dew/" + string(someInstance) + "/init",
	Main:    "/run/dew/instances/" + string(someInstance) + "/main",
	Guard: ocispec.Guard{
		Capture: "/var/lib/dew/logs/app-1/capture/" + string(someInstance), Limit: 256 << 20, Reserve: 512 << 20,
		Freezers: []cgroup.Freezer{{Dir: "/sys/fs/cgroup/dew/" + string(someInstance) + "/main", File: "cgroup.freeze", Freeze: "1", Thaw: "0"}},
	},
}

// The golden file defines the permissions of a container. A change of the file changes
// the isolation of every app.
func TestContainerSpec(t *testing.T) {
	t.Parallel()
	got := someBase().Container(someSpec(), somePaths)
	// The rules depend on the library and the kernel, the table on the machine.
	got.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: got.Linux.Seccomp.DefaultAction}
	goldenJSON(t, "container.json", got)
}

func TestSeccompIsThereForEveryInstance(t *testing.T) {
	t.Parallel()
	p := someBase().Container(someSpec(), somePaths).Linux.Seccomp
	if p.DefaultAction != specs.ActErrno {
		t.Errorf("default action = %s, want %s", p.DefaultAction, specs.ActErrno)
	}
	named := map[string]bool{}
	for _, s := range p.Syscalls {
		if s.Action != specs.ActAllow || len(s.Args) > 0 {
			continue
		}
		for _, n := range s.Names {
			named[n] = true
		}
	}
	if !named["read"] || !named["execve"] {
		t.Error("the profile does not allow read and execve")
	}
	for _, n := range []string{"mount", "setns", "bpf", "reboot", "init_module"} {
		if named[n] {
			t.Errorf("the profile allows %s to a process without capabilities", n)
		}
	}
}

// Compiling the profile takes most of the time of a start: one table by default.
func TestSeccompArchitectures(t *testing.T) {
	t.Parallel()
	arches := func(a ocispec.Arches) []specs.Arch {
		b := someBase()
		b.Seccomp = a
		return b.Container(someSpec(), somePaths).Linux.Seccomp.Architectures
	}
	native, known := map[string]specs.Arch{
		"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64, "s390x": specs.ArchS390X,
	}[goruntime.GOARCH]
	if !known {
		t.Skipf("no table of architectures for %s", goruntime.GOARCH)
	}
	for _, a := range []ocispec.Arches{ocispec.NativeArch, ""} {
		if got, want := arches(a), []specs.Arch{native}; !slices.Equal(got, want) {
			t.Errorf("architectures with %q = %v, want %v", a, got, want)
		}
	}
	if got := arches(ocispec.AllArches); len(got) < 2 || !slices.Contains(got, native) {
		t.Errorf("architectures with %q = %v, want %s and its 32-bit relatives", ocispec.AllArches, got, native)
	}
}

// Two specs share no memory, so that a change of one does not affect the other.
func TestContainerSpecsShareNothing(t *testing.T) {
	t.Parallel()
	base, s := someBase(), someSpec()
	a, b := base.Container(s, somePaths), base.Container(s, somePaths)
	a.Mounts[0].Options[0] = "changed"
	a.Linux.MaskedPaths[0] = "changed"
	a.Process.Rlimits[0].Hard = 1
	if b.Mounts[0].Options[0] == "changed" || b.Linux.MaskedPaths[0] == "changed" || b.Process.Rlimits[0].Hard == 1 {
		t.Error("a change of one spec shows in the other")
	}
}

func TestLaunchSpec(t *testing.T) {
	t.Parallel()
	p := someBase().Launch(runtime.ProcessSpec{
		Exec: "sidecar-0", Name: "config server", Command: `./config-server --name "a b" && echo $HOME`,
		Dir: "/home/vcap/app", Env: []string{"HOME=/home/vcap/app", "PORT=8080"}, Memory: 64 << 20,
	}, "/bin/bash")
	goldenJSON(t, "launch.json", p)
}

func TestOpenFilesStaysBelowHardLimit(t *testing.T) {
	t.Parallel()
	const most = 16384
	if got := ocispec.OpenFileLimit(); got == 0 || got > most {
		t.Errorf("openFiles() = %d, want 1 to %d", got, most)
	}
}
