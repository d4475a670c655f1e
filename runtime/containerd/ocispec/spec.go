package ocispec

import (
	"path/filepath"
	goruntime "runtime"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/userns"
	"github.com/dewrun/dew/services/bindingfiles"
)

// InitPath is the path of dew-init in every container.
const InitPath = dewFolder + "init"

// SFTPPath is the path of dew-sftp in every container.
const SFTPPath = dewFolder + "sftp"

// wantFiles is the limit of open files of instances, if the daemon's own hard limit
// allows it.
const wantFiles = 16384

// OOMScore makes the kernel kill apps first when the whole machine is out of memory.
// Without it they would inherit the near-immunity of containerd's service.
const OOMScore = 100

// Arches selects the system call tables that the seccomp profile is compiled for.
type Arches string

// Compiling the profile takes most of the time of a start, so 32-bit tables are
// included only on request.
const (
	NativeArch Arches = "native"
	AllArches  Arches = "all"
)

// nativeArch is the system call table of the machine itself. On other machines all
// tables of the profile are used.
var nativeArch = map[string]specs.Arch{
	"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64, "riscv64": specs.ArchRISCV64,
	"ppc64le": specs.ArchPPC64LE, "s390x": specs.ArchS390X,
}

// Base has the settings that all containers of this daemon share.
type Base struct {
	Init    string // dew-init on the host
	SFTP    string // dew-sftp on the host, or empty
	UID     uint32
	GID     uint32
	Files   uint64 // limit of open files
	Seccomp Arches
}

// OpenFileLimit limits wantFiles to the daemon's own hard limit, because raising it can be
// forbidden.
func OpenFileLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return min(wantFiles, l.Max)
}

// Paths has the paths of one instance on the host.
type Paths struct {
	Dir     string // its folder of run-time files
	Netns   string
	Cgroups string // OCI cgroupsPath
	Users   userns.Range
	UserNS  string // its user namespace, if it has users of its own
	Guard   Guard
	Certs   Certificates
	Main    string // file with the main process that PID 1 starts, or empty
}

// Certificates has the files on the host from which instances trust the router. Without
// a path there are none.
type Certificates struct {
	Dir    string // folder with the CA
	Bundle string // the machine's bundle with the CA, for the stack that has the machine's files
}

// Container returns the OCI spec of an instance.
func (b Base) Container(s runtime.Spec, p Paths) *specs.Spec {
	spec := &specs.Spec{
		Version:  "1.0.2",
		Root:     &specs.Root{Path: "rootfs"},
		Hostname: string(s.Instance),
		Process:  b.initProcess(s, p),
		Mounts:   append(systemMounts(), b.instanceMounts(s, p)...),
		Linux: &specs.Linux{
			CgroupsPath: p.Cgroups,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.CgroupNamespace},
				{Type: specs.NetworkNamespace, Path: p.Netns},
			},
			// A port below 1024 needs no protection in a separate network namespace.
			Sysctl:        map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
			Resources:     &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			MaskedPaths:   maskedPaths(),
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	if p.Users.Enabled() {
		p.useOwnUsers(spec)
	}
	spec.Linux.Seccomp = seccomp.DefaultProfile(spec)
	if native, ok := nativeArch[goruntime.GOARCH]; ok && b.Seccomp != AllArches {
		spec.Linux.Seccomp.Architectures = []specs.Arch{native}
	}
	return spec
}

// useOwnUsers gives the container the user namespace of its network namespace.
func (p Paths) useOwnUsers(spec *specs.Spec) {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: p.Users.First, Size: userns.Size}}
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: p.UserNS})
	spec.Linux.UIDMappings, spec.Linux.GIDMappings = ids, ids
}

// Process returns a process in the container. An exec inherits nothing from the
// container's own process, so everything is set each time.
func (b Base) Process(args []string, dir string, env []string) *specs.Process {
	oomScore := OOMScore
	return &specs.Process{
		User:            specs.User{UID: b.UID, GID: b.GID},
		Args:            args,
		Env:             env,
		Cwd:             dir,
		Capabilities:    &specs.LinuxCapabilities{},
		OOMScoreAdj:     &oomScore,
		Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: b.Files, Soft: b.Files}},
		NoNewPrivileges: true,
	}
}

// initProcess returns PID 1. It runs as root, without capabilities like all others: an app of
// another user can neither signal it nor open the files that it guards. Only to start the
// main process as its user does it need capabilities. It drops them before that process
// runs.
func (b Base) initProcess(s runtime.Spec, p Paths) *specs.Process {
	init := As(b.Process(append([]string{InitPath}, p.initArgs(s.Processes)...), "/", nil), &runtime.User{})
	if p.Main != "" {
		needed := []string{"CAP_CHOWN", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP"}
		init.Capabilities = &specs.LinuxCapabilities{Bounding: needed, Effective: needed, Permitted: needed}
	}
	return init
}

// initArgs returns the arguments of dew-init as PID 1.
func (p Paths) initArgs(ps []runtime.ProcessSpec) []string {
	if len(ps) == 0 {
		return nil
	}
	args := []string{"init"}
	if p.Main != "" {
		args = append(args, "--main", mainPath)
	}
	return append(args, p.Guard.args(ps)...)
}

// Launch returns the exec of one process of the app.
func (b Base) Launch(p runtime.ProcessSpec, shell string) *specs.Process {
	args := []string{InitPath, "launch"}
	switch {
	case len(p.Args) > 0:
		args = append(append(args, "--exec", "--"), p.Args...)
	case p.User != nil:
		args = append(args, "--no-profile", "--shell", shell, "--", p.Command)
	default:
		args = append(args, "--shell", shell, "--", p.Command)
	}
	return As(b.Process(args, p.Dir, p.Env), p.User)
}

// As sets the user of the process, without capabilities like all others.
func As(p *specs.Process, u *runtime.User) *specs.Process {
	if u != nil {
		p.User = specs.User{UID: u.UID, GID: u.GID}
	}
	return p
}

func systemMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
}

// instanceMounts returns the stack's mounts, then the instance's own, then the few
// files that differ by instance.
func (b Base) instanceMounts(s runtime.Spec, p Paths) []specs.Mount {
	var ms []specs.Mount
	for _, m := range s.Stack.Mounts {
		ms = append(ms, specs.Mount{Destination: m.Path, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	for _, m := range s.Mounts {
		ms = append(ms, specs.Mount{Destination: m.Path, Type: m.Type, Source: m.Source, Options: m.Options})
	}
	bind := func(source, target string, more ...string) {
		ms = append(ms, specs.Mount{
			Destination: target, Type: "bind", Source: source,
			Options: append([]string{"bind", "ro", "nosuid", "nodev"}, more...),
		})
	}
	bind(b.Init, InitPath)
	if b.SFTP != "" {
		bind(b.SFTP, SFTPPath)
	}
	// The run folder is in /run, which Debian mounts with noexec. In a user namespace, the
	// kernel refuses a bind mount without an option that the mount of the source has.
	data := func(source, target string) { bind(source, target, "noexec") }
	for _, f := range []string{"hosts", "resolv.conf", "hostname"} {
		data(filepath.Join(p.Dir, f), "/etc/"+f)
	}
	if s.Files != nil {
		data(BindingFiles(p.Dir), bindingfiles.Dir)
	}
	if p.Certs.Dir != "" {
		data(p.Certs.Dir, certs.InstanceDir)
	}
	if p.Certs.Bundle != "" && s.Stack.Name == stack.HostName {
		data(p.Certs.Bundle, certs.BundlePath)
	}
	if p.Main != "" {
		ms = append(ms, specs.Mount{
			Destination: mainPath, Type: "bind", Source: p.Main, Options: []string{"bind", "rw", "nosuid", "nodev", "noexec"},
		})
	}
	return append(ms, p.Guard.mounts(s.Processes)...)
}

// BindingFiles returns the folder with the service bindings of an instance, within its
// own folder.
func BindingFiles(dir string) string { return filepath.Join(dir, "bindings", "files") }

func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts",
		"/sys/firmware", "/sys/devices/virtual/powercap", "/sys/fs/cgroup",
	}
}
