package doctor

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cmd/dewd/folders"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/testkit"
)

// expect checks a Finding's level and text. A finding that is not ok must say what to
// do.
func expect(t *testing.T, got Finding, level, says string) {
	t.Helper()
	if got.Level != level || !strings.Contains(got.What, says) {
		t.Errorf("finding = %s %q, want %s with %q", got.Level, got.What, level, says)
	}
	if (got.Do == "") != (got.Level == OK) {
		t.Errorf("finding %s %q says to do %q", got.Level, got.What, got.Do)
	}
}

func TestUserRule(t *testing.T) {
	expect(t, userRule(0), OK, "root")
	expect(t, userRule(1000), Fail, "user ID 1000")
}

func TestKernelRule(t *testing.T) {
	for _, tt := range []struct{ release, level string }{
		{"6.1.0-18-amd64\n", OK},
		{"5.14.0", OK},
		{"5.10.0-28-amd64", Warning},
		{"5.4.0", Warning},
		{"4.19.0", Fail},
		{"", Fail},
		{"darwin", Fail},
	} {
		if got := kernelRule(tt.release); got.Level != tt.level {
			t.Errorf("kernelRule(%q) = %+v, want %s", tt.release, got, tt.level)
		}
	}
}

const (
	mountV2     = "31 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	mountHybrid = "31 23 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw\n"
	mountNamed  = "32 23 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
	mountV1     = "33 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"34 23 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 23 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	mountFreezer = "36 23 0:32 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n"
)

func TestCgroupRule(t *testing.T) {
	for _, tt := range []struct {
		name, mounts, controllers string
		level, says               string
	}{
		{"v2", mountV2, "cpuset cpu io memory pids\n", OK, "v2"},
		{"v2 without memory", mountV2, "cpu pids\n", Fail, "v2 without memory"},
		{"v2 with nothing", mountV2, "", Fail, "v2 without cpu, memory, pids"},
		{"v1", mountNamed + mountV1 + mountFreezer, "", OK, "v1"},
		{"hybrid", mountHybrid + mountNamed + mountV1 + mountFreezer, "", OK, "hybrid"},
		{"v1 without freezer", mountNamed + mountV1, "", Fail, "v1 without freezer"},
		{"none", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "", Fail, "no cgroup hierarchy"},
		{"torn", "31 23 - cgroup2\n", "", Fail, "no cgroup hierarchy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := fakeMachine(t, map[string]string{
				"proc/self/mountinfo":              tt.mounts,
				"sys/fs/cgroup/cgroup.controllers": tt.controllers,
			})
			expect(t, cgroupRule(m), tt.level, tt.says)
		})
	}
}

// fakeMachine returns a machine with the given files and no programs.
func fakeMachine(t *testing.T, files map[string]string) Machine {
	t.Helper()
	m := Machine{Settings: Settings{ContainerdBinary: "containerd", Snapshotter: "overlayfs", DiskLimits: true, AppUID: 2000, LogReserve: 512 << 20}, slash: t.TempDir(), program: func(context.Context, string, ...string) (string, error) {
		return "", exec.ErrNotFound
	}}
	m.Root = filepath.Join(m.slash, "root")
	m.Run = filepath.Join(m.slash, "run")
	m.Containerd = filepath.Join(m.slash, "containerd.sock")
	m.Init = filepath.Join(m.slash, "dew-init")
	for name, text := range files {
		path := filepath.Join(m.slash, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestSeccompRule(t *testing.T) {
	expect(t, seccompRule("NoNewPrivs:\t0\nSeccomp:\t0\n"), OK, "filters")
	expect(t, seccompRule("NoNewPrivs:\t0\n"), Fail, "does not support seccomp")
}

// The containerd of the machine must respond. Without its socket, the program counts,
// unless the socket was given explicitly.
func TestCheckContainerd(t *testing.T) {
	prints := func(text string) func(context.Context, string, ...string) (string, error) {
		return func(context.Context, string, ...string) (string, error) { return text, nil }
	}
	t.Run("no socket, no program", func(t *testing.T) {
		m := fakeMachine(t, nil)
		m.Containerd, m.DefaultContainerd = "/run/containerd/containerd.sock", true
		if _, err := os.Stat(m.Containerd); err == nil {
			t.Skip("this machine has a containerd")
		}
		expect(t, checkContainerd(t.Context(), m), Fail, "nor the program containerd")
		m.program = prints("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3")
		expect(t, checkContainerd(t.Context(), m), OK, "1.6, dewd starts it as private containerd")
	})
	t.Run("a socket asked for is not there", func(t *testing.T) {
		m := fakeMachine(t, nil)
		m.program = prints("containerd 1.7.1")
		expect(t, checkContainerd(t.Context(), m), Fail, "the containerd socket "+m.Containerd+" does not exist")
	})
	t.Run("no server behind the socket", func(t *testing.T) {
		m := fakeMachine(t, map[string]string{"containerd.sock": ""})
		expect(t, checkContainerd(t.Context(), m), Fail, "does not respond")
	})
	t.Run("the machine's answers", func(t *testing.T) {
		m := fakeMachine(t, nil)
		serveVersion(t, m.Containerd, "v1.7.24")
		expect(t, checkContainerd(t.Context(), m), OK, "1.7, at "+m.Containerd)
	})
	t.Run("this root's own answers", func(t *testing.T) {
		m := fakeMachine(t, map[string]string{"root/containerd/x": "", "run/containerd/x": ""})
		serveVersion(t, filepath.Join(m.Run, "containerd", "containerd.sock"), "2.0.0")
		expect(t, checkContainerd(t.Context(), m), OK, "2.0, at "+m.Run)
	})
	t.Run("this root's own is down", func(t *testing.T) {
		m := fakeMachine(t, map[string]string{"root/containerd/x": ""})
		m.program = prints("containerd 1.7.1")
		expect(t, checkContainerd(t.Context(), m), OK, "1.7, dewd starts it as private containerd")
	})
}

// serveVersion serves only the version request of containerd.
func serveVersion(t *testing.T, socket, version string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var in, out emptypb.Empty
		if err := stream.RecvMsg(&in); err != nil {
			return err
		}
		b := protowire.AppendTag(nil, 2, protowire.BytesType)
		b = protowire.AppendString(b, "revision")
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		out.ProtoReflect().SetUnknown(protowire.AppendString(b, version))
		return stream.SendMsg(&out)
	}))
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(s.Stop)
}

func TestContainerdRule(t *testing.T) {
	expect(t, containerdRule("1.6.20~ds1", "here"), OK, "1.6, here")
	expect(t, containerdRule("v2.1.3", "here"), OK, "2.1")
	expect(t, containerdRule("1.5.9", "here"), Fail, "older than 1.6")
	expect(t, containerdRule("unknown", "here"), Warning, "unknown")
}

func TestRuncRule(t *testing.T) {
	expect(t, runcRule("runc version 1.1.5+ds1\nspec: 1.0.2-dev"), OK, "1.1")
	expect(t, runcRule("runc version 1.0.3"), Fail, "older")
	expect(t, runcRule("runc"), Warning, "unknown")
	expect(t, checkRunc(t.Context(), fakeMachine(t, nil)), Fail, "not found")
}

func TestCheckInit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "dew-init")
	expect(t, checkInit(path), Fail, path+" does not exist")
	for _, tt := range []struct {
		name        string
		content     []byte
		level, says string
	}{
		{"script", []byte("#!/bin/sh\n"), Fail, "is not an executable program"},
		{"static", program(t, elf.PT_LOAD), OK, path},
		{"dynamic", program(t, elf.PT_INTERP), Fail, "is not statically linked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			expect(t, checkInit(path), tt.level, tt.says)
		})
	}
}

// program returns the smallest valid program, with one program header.
func program(t *testing.T, part elf.ProgType) []byte {
	t.Helper()
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 1,
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	if err := binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(part)}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAppUserRule(t *testing.T) {
	passwd := "root:x:0:0:root:/root:/bin/bash\ndaemon:x:500:500::/:/usr/sbin/nologin\nann:x:2001:2001::/home/ann:/bin/bash\nvcap:x:2002:2002::/home/vcap:/bin/bash\ntorn\n"
	expect(t, appUserRule(passwd, 2000), OK, "no user has the ID")
	expect(t, appUserRule(passwd, 2001), Warning, "ann, who can log in")
	expect(t, appUserRule(passwd, 500), Warning, "user ID 500 belongs to daemon")
	expect(t, appUserRule(passwd, 2002), OK, "no user has the ID")
	expect(t, appUserRule("", 2000), OK, "no user has the ID")
}

func TestNamesRule(t *testing.T) {
	expect(t, namesRule("a.dew.localhost", "::1             STREAM a.dew.localhost\n", nil), OK, "::1")
	expect(t, namesRule("a.dew.localhost", "127.0.0.1 STREAM\n", nil), OK, "127.0.0.1")
	expect(t, namesRule("a.example.org", "192.0.2.1 STREAM\n", nil), Warning, "not to this machine")
	expect(t, namesRule("a.dew.localhost", "", errors.New("exit status 2")), Warning, "does not resolve")
	expect(t, namesRule("a.dew.localhost", "", exec.ErrNotFound), Warning, "program getent not found")
}

func TestSubnetRule(t *testing.T) {
	taken := []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24"), netip.MustParsePrefix("10.201.0.0/20")}
	expect(t, subnetRule(netip.MustParsePrefix("10.9.0.0/20"), taken), OK, "is free")
	expect(t, subnetRule(netip.MustParsePrefix("192.168.0.0/16"), taken), Fail, "overlaps 192.168.1.0/24")
	expect(t, subnetRule(netip.Prefix{}, taken), OK, "dewd chooses a free network in 10.201.0.0/16")
	expect(t, subnetRule(netip.Prefix{}, append(taken, netip.MustParsePrefix("10.0.0.0/8"))), Fail, "all of 10.201.0.0/16 is within 10.0.0.0/8")
}

func TestDiskRule(t *testing.T) {
	const mib = 1 << 20
	expect(t, diskRule("/x", 4096*mib, 512*mib), OK, "4096 MiB free on /x")
	expect(t, diskRule("/x", 1024*mib, 512*mib), Warning, "1024 MiB")
	expect(t, diskRule("/x", 100*mib, 512*mib), Fail, "less than the reserve of 512 MiB")
}

func TestInotifyRule(t *testing.T) {
	expect(t, inotifyRule("128\n", "65536\n"), OK, "128 instances")
	expect(t, inotifyRule("128", "1024"), Warning, "low")
	expect(t, inotifyRule("1", "65536"), Warning, "low")
	expect(t, inotifyRule("", ""), Warning, "cannot read the inotify limits")
}

func TestDaemonRule(t *testing.T) {
	root := t.TempDir()
	rule := func(root string) Finding { return daemonRule(Machine{Settings: Settings{Root: root}}) }
	expect(t, rule(root), OK, "no dewd runs on "+root)
	expect(t, daemonRule(Machine{Settings: Settings{Root: root}, others: []string{"/run/dew-1"}}), Warning, "found a dewd at /run/dew-1")
	h, err := folders.Hold(t.Context(), root, filepath.Join(t.TempDir(), "run"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, rule(root), OK, fmt.Sprintf("pid %d runs", os.Getpid()))
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
}

// doctor checks the root of the daemon of --run.
func TestDoctorFindsDaemon(t *testing.T) {
	run := testkit.ShortDir(t)
	m := Machine{Settings: Settings{Root: "/var/lib/dew", Run: run}}
	m.FindDaemon(t.Context(), false)
	if m.others = nil; m.status != nil {
		t.Fatalf("met %+v where none is", m.status)
	}
	expect(t, daemonRule(m), OK, "start dewd with systemctl start dew, make run in a checkout, or dewd")
	l, err := net.Listen("unix", filepath.Join(run, folders.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"root":"/elsewhere","domain":"apps.example.com","pid":4711,"version":"v9"}`)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	m.FindDaemon(t.Context(), false)
	if m.Root != "/elsewhere" || m.Domain != "apps.example.com" {
		t.Errorf("the checks look at %s and %s", m.Root, m.Domain)
	}
	expect(t, daemonRule(m), OK, "dewd v9 with pid 4711 runs on /elsewhere, socket "+run)
}

// Without root, doctor only says that it needs root, because its other findings could
// be wrong.
func TestDoctorWithoutRoot(t *testing.T) {
	m := Machine{uid: 1000}
	found := m.Examine(t.Context())
	if len(found) != 1 {
		t.Fatalf("found %+v", found)
	}
	expect(t, found[0], Fail, "dewd doctor runs as user ID 1000, but the other checks need root")
}

func TestNearest(t *testing.T) {
	dir := t.TempDir()
	if got := nearest(filepath.Join(dir, "a", "b")); got != dir {
		t.Errorf("nearest = %s, want %s", got, dir)
	}
	if got := nearest(dir); got != dir {
		t.Errorf("nearest = %s, want itself, %s", got, dir)
	}
}

// The checks leave no files, whether the file system supports punching holes or not.
func TestTriesLeaveNothing(t *testing.T) {
	m := fakeMachine(t, nil)
	m.Root = t.TempDir()
	for _, c := range []Check{{"punch", tryPunch}, {"overlay", tryOverlay}, {"disk", checkDisk}} {
		if f := c.Run(t.Context(), m); f.Level != OK && f.Do == "" {
			t.Errorf("%s: %+v says nothing to do", c.Name, f)
		}
	}
	left, err := os.ReadDir(m.Root)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestFindNumber(t *testing.T) {
	for in, want := range map[string]number{
		"1.6.20": {1, 6}, "v2.0.0-rc.1": {2, 0}, "containerd github.com/containerd/containerd 1.6.20~ds1": {1, 6}, "runc version 1.1.5": {1, 1},
	} {
		if got, ok := findNumber(in); !ok || got != want {
			t.Errorf("findNumber(%q) = %v, %t, want %v", in, got, ok, want)
		}
	}
}

func TestExamineNamesAndBounds(t *testing.T) {
	var limit time.Time
	found := Machine{}.examine(t.Context(), []Check{
		{"first", func(ctx context.Context, _ Machine) Finding { limit, _ = ctx.Deadline(); return Good("fine") }},
		{"second", func(context.Context, Machine) Finding { return Bad("broken", "repair it") }},
	})
	if limit.IsZero() {
		t.Error("a check has no deadline")
	}
	var text, asJSON bytes.Buffer
	if err := printText(&text, found); err != nil {
		t.Fatal(err)
	}
	want := "ok    first          fine\nFAIL  second         broken  -> repair it\nchecks: 2, warnings: 0, failed: 1\n"
	if text.String() != want {
		t.Errorf("text = %q, want %q", text.String(), want)
	}
	if got := summary(found[:1]); got != "checks: 1, all ok" {
		t.Errorf("summary = %q", got)
	}
	if err := printJSON(&asJSON, found); err != nil {
		t.Fatal(err)
	}
	var back []Finding
	if err := json.Unmarshal(asJSON.Bytes(), &back); err != nil || len(back) != 2 || back[1] != found[1] {
		t.Errorf("JSON = %s, %v, want the same findings", asJSON.String(), err)
	}
}

// The parsers accept any output of the kernel or of another program.
func FuzzTexts(f *testing.F) {
	f.Add(mountV2 + mountV1 + mountNamed)
	f.Add("ann:x:2000:2000::/home/ann:/bin/bash\n")
	f.Add("1.6.20~ds1")
	f.Add("::1 STREAM x\n")
	f.Fuzz(func(t *testing.T, s string) {
		v1, _ := cgroup.Mounts(s)
		for _, c := range v1 {
			if strings.ContainsAny(c, "=,") {
				t.Errorf("controller %q", c)
			}
		}
		for _, got := range []Finding{kernelRule(s), containerdRule(s, ""), runcRule(s), appUserRule(s, 2000), namesRule("n", s, nil), inotifyRule(s, s), seccompRule(s)} {
			if (got.Do == "") != (got.Level == OK) {
				t.Errorf("finding %+v", got)
			}
		}
		if _, err := firstString([]byte(s)); err == nil && s == "" {
			t.Error("a version out of nothing")
		}
	})
}

func TestAddressesRule(t *testing.T) {
	for name, tt := range map[string]struct {
		status *v3.Status
		level  string
		says   string
	}{
		"no daemon":   {nil, OK, "not checked"},
		"without TLS": {&v3.Status{API: "http://127.0.0.1:8484"}, OK, "http://127.0.0.1:8484, without TLS"},
		"TLS":         {&v3.Status{TLS: &v3.TLS{API: "https://127.0.0.1:8485", Router: "https://127.0.0.1:8443"}}, OK, "with TLS https://127.0.0.1:8485, routes https://127.0.0.1:8443"},
		"a problem":   {&v3.Status{Warnings: []string{"The port is taken", "The route hides the API"}}, Warning, "The port is taken; The route hides the API"},
	} {
		if got := addressesRule(Machine{status: tt.status}); got.Level != tt.level || !strings.Contains(got.What, tt.says) || (got.Level == Warning) != (got.Do != "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
