package stack

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine creates a root from lines "path", "path -> target" and "path/" and returns
// it.
func machine(t *testing.T, lines ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, line := range lines {
		p, target, isLink := strings.Cut(line, " -> ")
		full := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			err = os.Symlink(target, full)
		case strings.HasSuffix(p, "/"):
			err = os.MkdirAll(full, 0o755)
		default:
			err = os.WriteFile(full, []byte(p), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var debian = []string{
	"/usr/bin/bash", "/usr/bin/sh -> bash", "/usr/lib/os-release", "/usr/lib64/", "/usr/sbin/",
	"/usr/share/zoneinfo/UTC",
	"/bin -> usr/bin", "/lib -> usr/lib", "/lib64 -> usr/lib64", "/sbin -> usr/sbin",
	"/etc/os-release -> ../usr/lib/os-release",
	"/etc/localtime -> /usr/share/zoneinfo/UTC",
	"/etc/ssl/certs/a.pem", "/etc/ssl/private/key.pem", "/etc/ssl/openssl.cnf",
	"/etc/alternatives/", "/etc/ld.so.cache", "/etc/java-17-openjdk/security", "/etc/shadow", "/etc/passwd",
	"/var/lib/dpkg/status",
}

func hostStack0(t *testing.T, root string) Stack {
	t.Helper()
	s, err := FromHost(HostOptions{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	checkStack(t, s)
	return s
}

// checkStack checks the requirements of an engine: parents before children, a mount
// point of the right kind for every mount, one entry per path.
func checkStack(t *testing.T, s Stack) {
	t.Helper()
	seen := map[string]string{}
	add := func(p, kind string) {
		t.Helper()
		if old, ok := seen[p]; ok {
			t.Errorf("%s is a %s and a %s", p, old, kind)
		}
		if parent := path.Dir(p); p != "/" && seen[parent] != "dir" {
			t.Errorf("%s %s comes before its parent", kind, p)
		}
		seen[p] = kind
	}
	for _, d := range s.Dirs {
		add(d.Path, "dir")
	}
	for _, f := range s.Files {
		add(f.Path, "file")
	}
	for _, l := range s.Links {
		add(l.Path, "link")
	}
	for _, m := range s.Mounts {
		if m.Type == "tmpfs" {
			continue
		}
		want := "file"
		if fi, err := os.Lstat(m.Source); err != nil {
			t.Errorf("source of %s: %v", m.Path, err)
		} else if fi.IsDir() {
			want = "dir"
		}
		if seen[m.Path] != want {
			t.Errorf("mount point %s is a %q, want a %s", m.Path, seen[m.Path], want)
		}
		if want == "dir" && !slices.Contains(m.Options, "rprivate") {
			t.Errorf("mounts in %s reach the machine: %v", m.Path, m.Options)
		}
		if !slices.Contains(m.Options, "ro") {
			t.Errorf("mount %s is writable: %v", m.Path, m.Options)
		}
	}
}

// mounts returns path -> source without root.
func mounts(s Stack, root string) map[string]string {
	out := map[string]string{}
	for _, m := range s.Mounts {
		out[m.Path] = strings.TrimPrefix(m.Source, root)
	}
	return out
}

func links(s Stack) map[string]string {
	out := map[string]string{}
	for _, l := range s.Links {
		out[l.Path] = l.Target
	}
	return out
}

func TestHostStackOfMergedUsr(t *testing.T) {
	root := machine(t, debian...)
	s := hostStack0(t, root)
	wantMounts := map[string]string{
		"/usr": "/usr", "/etc/alternatives": "/etc/alternatives", "/etc/java-17-openjdk": "/etc/java-17-openjdk",
		"/etc/ld.so.cache": "/etc/ld.so.cache", "/etc/ssl/certs": "/etc/ssl/certs", "/etc/ssl/openssl.cnf": "/etc/ssl/openssl.cnf",
		"/tmp": "tmpfs",
	}
	if diff := cmp.Diff(mounts(s, root), wantMounts); diff != "" {
		t.Errorf("mounts (-got +want):\n%s", diff)
	}
	wantLinks := map[string]string{
		"/bin": "usr/bin", "/lib": "usr/lib", "/lib64": "usr/lib64", "/sbin": "usr/sbin",
		"/etc/os-release": "../usr/lib/os-release", "/etc/localtime": "../usr/share/zoneinfo/UTC",
		"/etc/mtab": "../proc/self/mounts", "/var/run": "../run",
	}
	if diff := cmp.Diff(links(s), wantLinks); diff != "" {
		t.Errorf("links (-got +want):\n%s", diff)
	}
	if s.Shell != "/bin/bash" {
		t.Errorf("shell = %s, want /bin/bash", s.Shell)
	}
}

func TestHostStackOfOddMachines(t *testing.T) {
	tests := map[string]struct {
		lines  []string
		mounts map[string]string // path -> source; "": none
		links  map[string]string
		shell  string
	}{
		"folders of their own": {
			lines:  []string{"/usr/bin/env", "/bin/bash", "/lib/libc.so", "/lib64 -> lib", "/sbin/"},
			mounts: map[string]string{"/bin": "/bin", "/lib": "/lib", "/sbin": "/sbin", "/lib64": ""},
			links:  map[string]string{"/lib64": "lib", "/bin": ""},
			shell:  "/bin/bash",
		},
		"no bash": {
			lines: []string{"/usr/bin/busybox", "/bin -> usr/bin", "/usr/bin/sh -> /bin/busybox"},
			links: map[string]string{"/bin": "usr/bin"},
			shell: "/bin/sh",
		},
		"a link through a path that is not in the stack": {
			lines: []string{"/usr/bin/sh", "/usr/share/zoneinfo/CET", "/etc/zone -> /usr/share/zoneinfo/CET", "/etc/localtime -> zone"},
			links: map[string]string{"/etc/localtime": "../usr/share/zoneinfo/CET"},
			shell: "/usr/bin/sh",
		},
		"a link to a place that is not in the stack": {
			lines:  []string{"/usr/bin/sh", "/srv/certs/a.pem", "/etc/ssl/certs -> ../../srv/certs", "/etc/localtime -> /nowhere"},
			mounts: map[string]string{"/etc/ssl/certs": "/srv/certs", "/etc/localtime": ""},
			links:  map[string]string{"/etc/ssl/certs": "", "/etc/localtime": ""},
			shell:  "/usr/bin/sh",
		},
		"a link to something bound": {
			lines:  []string{"/usr/bin/sh", "/etc/pki/tls/certs/a.pem", "/etc/ssl/certs -> ../pki/tls/certs"},
			mounts: map[string]string{"/etc/pki/tls/certs": "/etc/pki/tls/certs", "/etc/ssl/certs": ""},
			links:  map[string]string{"/etc/ssl/certs": "../pki/tls/certs"},
			shell:  "/usr/bin/sh",
		},
		"links in a circle, a file where a folder is expected": {
			lines:  []string{"/usr/bin/sh", "/etc/localtime -> os-release", "/etc/os-release -> localtime", "/etc/ssl"},
			mounts: map[string]string{"/etc/localtime": "", "/etc/ssl/certs": ""},
			links:  map[string]string{"/etc/localtime": "", "/etc/os-release": ""},
			shell:  "/usr/bin/sh",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := machine(t, tt.lines...)
			s := hostStack0(t, root)
			for p, want := range tt.mounts {
				if got := mounts(s, root)[p]; got != want {
					t.Errorf("mount %s = %q, want %q", p, got, want)
				}
			}
			for p, want := range tt.links {
				if got := links(s)[p]; got != want {
					t.Errorf("link %s = %q, want %q", p, got, want)
				}
			}
			if s.Shell != tt.shell {
				t.Errorf("shell = %s, want %s", s.Shell, tt.shell)
			}
		})
	}
}

func TestHostStackBase(t *testing.T) {
	root := machine(t, debian...)
	s, err := FromHost(HostOptions{Root: root, UID: 2345, GID: 2346})
	if err != nil {
		t.Fatal(err)
	}
	checkStack(t, s)
	dirs := map[string]Dir{}
	for _, d := range s.Dirs {
		dirs[d.Path] = d
	}
	for _, want := range []Dir{
		{"/home/vcap", 0o755, 2345, 2346},
		{"/home/vcap/app", 0o755, 2345, 2346},
		{"/home/vcap/tmp", 0o755, 2345, 2346},
		{"/home/vcap/deps", 0o755, 2345, 2346},
		{"/home/vcap/logs", 0o755, 2345, 2346},
		{"/root", 0o700, 0, 0},
		{"/tmp", 0o1777, 0, 0},
		{"/var/tmp", 0o1777, 0, 0},
		{"/dev", 0o755, 0, 0},
		{"/proc", 0o755, 0, 0},
		{"/sys", 0o755, 0, 0},
		{"/run", 0o755, 0, 0},
	} {
		if got := dirs[want.Path]; got != want {
			t.Errorf("dir = %+v, want %+v", got, want)
		}
	}
	files := map[string]string{}
	for _, f := range s.Files {
		files[f.Path] = f.Data
	}
	for _, p := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/.dew/init", "/etc/nsswitch.conf", "/etc/group"} {
		if _, ok := files[p]; !ok {
			t.Errorf("no file %s", p)
		}
	}
	if want := "\nvcap:x:2345:2346:vcap:/home/vcap:/bin/bash\n"; !strings.HasSuffix(files["/etc/passwd"], want) {
		t.Errorf("passwd = %q, want it to end in %q", files["/etc/passwd"], want)
	}
	if want := "\nvcap:x:2346:\n"; !strings.HasSuffix(files["/etc/group"], want) {
		t.Errorf("group = %q, want it to end in %q", files["/etc/group"], want)
	}
	tmp := s.Mounts[len(s.Mounts)-1]
	if tmp.Path != "/tmp" || tmp.Type != "tmpfs" || !slices.Contains(tmp.Options, "mode=1777") {
		t.Errorf("last mount = %+v, want the tmpfs /tmp", tmp)
	}
}

// No ID appears twice in passwd or group, whatever the ID of the app's user is.
func TestGeneratedIDsAreUnique(t *testing.T) {
	for _, id := range []int{5, 2000, 65534} {
		for name, text := range map[string]string{"passwd": passwdFile(id, id, "/bin/sh"), "group": groupFile(id)} {
			seen := map[string]bool{}
			for line := range strings.Lines(text) {
				field := strings.Split(line, ":")[2]
				if seen[strings.TrimSpace(field)] {
					t.Errorf("%s for %d has id %s twice:\n%s", name, id, field, text)
				}
				seen[strings.TrimSpace(field)] = true
			}
		}
	}
}

func TestHostStackRefuses(t *testing.T) {
	_, err := FromHost(HostOptions{Root: machine(t, "/usr/bin/env", "/bin/bash -> /nowhere")})
	if err == nil || !strings.Contains(err.Error(), "install bash") {
		t.Errorf("error without a shell = %v, want the remedy", err)
	}
	_, err = FromHost(HostOptions{Root: machine(t, debian...), UID: -1})
	if err == nil || !strings.Contains(err.Error(), "-1") {
		t.Errorf("error for uid -1 = %v, want one that says so", err)
	}
}

// The ID is the same for the same machine, and different for every change that an app
// could notice.
func TestHostStackID(t *testing.T) {
	root := machine(t, debian...)
	first := hostStack0(t, root).ID
	if first == "" || len(first) > 16 {
		t.Fatalf("id = %q, want a short one", first)
	}
	if again := hostStack0(t, root).ID; again != first {
		t.Errorf("id = %s, then %s", first, again)
	}
	ids := map[string]string{first: "first"}
	write := func(p string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, p), []byte("changed"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"os-release", func() { write("/usr/lib/os-release") }},
		{"packages", func() { write("/var/lib/dpkg/status") }},
		{"something new to bind", func() { write("/etc/protocols") }},
	} {
		c.do()
		id := hostStack0(t, root).ID
		if old, ok := ids[id]; ok {
			t.Errorf("id after %s is that of %s", c.name, old)
		}
		ids[id] = c.name
	}
	other, err := FromHost(HostOptions{Root: root, UID: 2001})
	if err != nil {
		t.Fatal(err)
	}
	if old, ok := ids[other.ID]; ok {
		t.Errorf("id for another user is that of %s", old)
	}
}

// The machine that runs the test gives a stack that an engine can create.
func TestHostStackOfThisMachine(t *testing.T) {
	s := hostStack0(t, "")
	if s.Mounts[0].Path != "/usr" || s.Mounts[0].Source != "/usr" {
		t.Errorf("first mount = %+v, want /usr", s.Mounts[0])
	}
}
