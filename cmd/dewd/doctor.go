package main

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/dewrun/dew/api/client"
	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cmd/dewd/folders"
	"github.com/dewrun/dew/runtime/cgroup"
)

// checkLimit limits the time of one check, so that doctor never hangs.
const checkLimit = 10 * time.Second

// The levels of a finding. Only FAIL means that dewd cannot run apps.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "FAIL"
)

// finding is the result of one check, and what to do about it.
type finding = v3.Finding

func good(format string, args ...any) finding {
	return finding{Level: levelOK, What: fmt.Sprintf(format, args...)}
}

func warn(what, do string) finding { return finding{Level: levelWarn, What: what, Do: do} }
func bad(what, do string) finding  { return finding{Level: levelFail, What: what, Do: do} }

// machine is the input of the checks.
type machine struct {
	cfg   config
	slash string // root of its files; only tests use another one than "/"
	uid   int
	// status is that of the daemon of --run if --root is not given. Nil means none.
	status *v3.Status
	others []string // run folders of other daemons
	start  string   // how to start a daemon, if that can be the problem
	// program runs a program and returns its output.
	program func(ctx context.Context, name string, args ...string) (string, error)
}

// read returns the text of a file, or nothing if it does not exist.
func (m machine) read(path string) string {
	b, err := os.ReadFile(filepath.Join(m.slash, path))
	if err != nil {
		return ""
	}
	return string(b)
}

// check is one check of the machine.
type check struct {
	name string
	run  func(ctx context.Context, m machine) finding
}

// checks returns the checks in the order of the output: user, kernel, programs,
// folders. Without root, it returns only the first, because the results of the others
// say nothing about dewd then.
func checks(uid int) []check {
	all := []check{
		{"user", func(_ context.Context, m machine) finding { return userRule(m.uid) }},
		{"kernel", func(_ context.Context, m machine) finding { return kernelRule(m.read("/proc/sys/kernel/osrelease")) }},
		{"cgroups", func(_ context.Context, m machine) finding { return cgroupRule(m) }},
		{"seccomp", func(_ context.Context, m machine) finding { return seccompRule(m.read("/proc/self/status")) }},
		{"overlayfs", tryOverlay},
		{"network", tryNetwork},
		{"containerd", checkContainerd},
		{"runc", checkRunc},
		{"dew-init", func(_ context.Context, m machine) finding { return checkInit(m.cfg.Init) }},
		{"app user", func(_ context.Context, m machine) finding { return appUserRule(m.read("/etc/passwd"), m.cfg.AppUID) }},
		{"names", checkNames},
		{"subnet", checkSubnet},
		{"disk", checkDisk},
		{"disk limits", tryDiskLimits},
		{"hole punching", tryPunch},
		{"inotify", func(_ context.Context, m machine) finding {
			return inotifyRule(m.read("/proc/sys/fs/inotify/max_user_instances"), m.read("/proc/sys/fs/inotify/max_user_watches"))
		}},
		{"set aside", func(_ context.Context, m machine) finding { return setAsideRule(m.cfg.Root) }},
		{"stored URLs", checkURLs},
		{"quotas", func(_ context.Context, m machine) finding { return quotasRule(m) }},
		{"daemon", func(_ context.Context, m machine) finding { return daemonRule(m) }},
	}
	if uid != 0 {
		return all[:1]
	}
	return all
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "Print the results as JSON"} }

// doctor runs all checks and prints the results.
func doctor(c *cli.Context, cfg config) error {
	m := machine{cfg: cfg, slash: "/", uid: os.Geteuid(), program: output}
	if m.uid == 0 && !c.IsSet("root") {
		m.findDaemon(c.Context)
	}
	found := examine(c.Context, m, checks(m.uid))
	printed := printText
	if c.Bool("json") {
		printed = printJSON
	}
	if err := printed(c.App.Writer, found); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f finding) bool { return f.Level == levelFail }) {
		return infrastructure(errors.New("")) // everything is printed already
	}
	return nil
}

// examineSelf runs all checks for this daemon.
func (c config) examineSelf(ctx context.Context) []finding {
	m := machine{cfg: c, slash: "/", uid: os.Geteuid(), program: output}
	return examine(ctx, m, checks(m.uid))
}

func examine(ctx context.Context, m machine, list []check) []finding {
	var found []finding
	for _, c := range list {
		bounded, cancel := context.WithTimeout(ctx, checkLimit)
		f := c.run(bounded, m)
		cancel()
		f.Name = c.name
		found = append(found, f)
	}
	return found
}

func printText(w io.Writer, found []finding) error {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%-4s  %-13s  %s", f.Level, f.Name, f.What)
		if f.Do != "" {
			b.WriteString("  -> " + f.Do)
		}
		b.WriteByte('\n')
	}
	b.WriteString(summary(found) + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// summary returns the result of the checks in one line.
func summary(found []finding) string {
	count := func(level string) (n int) {
		for _, f := range found {
			if f.Level == level {
				n++
			}
		}
		return n
	}
	failed, warned := count(levelFail), count(levelWarn)
	if failed+warned == 0 {
		return fmt.Sprintf("checks: %d, all ok", len(found))
	}
	return fmt.Sprintf("checks: %d, warnings: %d, failed: %d", len(found), warned, failed)
}

func printJSON(w io.Writer, found []finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(found)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	b, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(b), err
}

func userRule(uid int) finding {
	if uid != 0 {
		return bad(fmt.Sprintf("dewd doctor runs as user ID %d, but the other checks need root", uid), "sudo dewd doctor")
	}
	return good("root")
}

// number is a version as major.minor.
type number struct{ major, minor int }

func (n number) before(o number) bool {
	return n.major < o.major || n.major == o.major && n.minor < o.minor
}

var numberForm = regexp.MustCompile(`\bv?([0-9]{1,6})\.([0-9]{1,6})`)

// findNumber finds the first version in a text.
func findNumber(s string) (number, bool) {
	m := numberForm.FindStringSubmatch(s)
	if m == nil {
		return number{}, false
	}
	major, _ := strconv.Atoi(m[1]) // at most six digits
	minor, _ := strconv.Atoi(m[2])
	return number{major, minor}, true
}

func kernelRule(release string) finding {
	release = strings.TrimSpace(release)
	n, ok := findNumber(release)
	switch {
	case !ok:
		return bad("no kernel release found: this is not Linux", "run dewd on Linux")
	case n.before(number{5, 4}):
		return bad(release+" is older than 5.4", "install a newer kernel")
	case n.before(number{5, 14}):
		return warn(release+" has no cgroup.kill: dewd kills processes one by one", "install Linux 5.14 or newer, where dewd kills all processes of a cgroup at once")
	}
	return good("%s", release)
}

// neededV2 and neededV1 are the cgroup controllers that leaves need.
var (
	neededV2 = []string{"cpu", "memory", "pids"}
	neededV1 = []string{"cpu", "memory", "pids", "freezer"}
)

func cgroupRule(m machine) finding {
	v1, unified := cgroup.Mounts(m.read("/proc/self/mountinfo"))
	if len(v1) == 0 && unified == "" {
		return bad("no cgroup hierarchy is mounted", "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd")
	}
	if len(v1) == 0 {
		have := strings.Fields(m.read(filepath.Join(unified, "cgroup.controllers")))
		if lack := without(neededV2, have); len(lack) > 0 {
			return bad("v2 without "+strings.Join(lack, ", "), "enable these controllers in cgroup.subtree_control of the parent cgroup, or on the kernel command line")
		}
		return good("v2")
	}
	if lack := without(neededV1, v1); len(lack) > 0 {
		return bad("v1 without "+strings.Join(lack, ", "), "mount these controllers under /sys/fs/cgroup, or boot with cgroups v2 (systemd.unified_cgroup_hierarchy=1)")
	}
	if unified == "" {
		return good("v1")
	}
	return good("v1 and unified (hybrid)")
}

func without(needed, have []string) []string {
	return slices.DeleteFunc(slices.Clone(needed), func(n string) bool { return slices.Contains(have, n) })
}

func seccompRule(status string) finding {
	if !strings.Contains(status, "\nSeccomp:") {
		return bad("the kernel does not support seccomp", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	return good("filters")
}

// checkContainerd checks the containerd that dewd would use. This is the private one of
// this root, otherwise that of the machine, otherwise a new private one.
func checkContainerd(ctx context.Context, m machine) finding {
	socket, private := m.cfg.Containerd, false
	if _, err := os.Stat(filepath.Join(m.cfg.Root, "containerd")); err == nil {
		socket, private = filepath.Join(m.cfg.Run, "containerd", "containerd.sock"), true
	}
	found, err := serverVersion(ctx, socket)
	if err == nil {
		return containerdRule(found, "at "+socket)
	}
	if !private && !errors.Is(err, os.ErrNotExist) {
		return bad(oneLine(fmt.Errorf("containerd does not respond at %s: %w", socket, err)), "start containerd, remove the socket if no containerd uses it, or set another socket with --containerd")
	}
	if !private && socket != defaultConfig().Containerd {
		return bad("the containerd socket "+socket+" does not exist", "start containerd, or omit --containerd: then dewd starts a private containerd")
	}
	text, err := m.program(ctx, m.cfg.ContainerdBinary, "--version")
	if err != nil {
		return bad("found neither the containerd socket "+m.cfg.Containerd+" nor the program "+m.cfg.ContainerdBinary, "run make setup, install containerd, or set the path of its program with --containerd-binary")
	}
	return containerdRule(text, "dewd starts it as private containerd")
}

func containerdRule(text, where string) finding {
	n, ok := findNumber(text)
	if !ok {
		return warn("unknown version, "+where, "check that containerd is 1.6 or newer")
	}
	if n.before(number{1, 6}) {
		return bad(fmt.Sprintf("%d.%d is older than 1.6 (%s)", n.major, n.minor, where), "install a newer containerd")
	}
	return good("%d.%d, %s", n.major, n.minor, where)
}

func checkRunc(ctx context.Context, m machine) finding {
	text, err := m.program(ctx, "runc", "--version")
	if err != nil {
		return bad("program runc not found in PATH", "run make setup, or install runc")
	}
	return runcRule(text)
}

func runcRule(text string) finding {
	n, ok := findNumber(text)
	if !ok {
		return warn("unknown version", "check that runc is 1.1 or newer")
	}
	if n.before(number{1, 1}) {
		return bad(fmt.Sprintf("%d.%d is older than 1.1", n.major, n.minor), "install a newer runc")
	}
	return good("%d.%d", n.major, n.minor)
}

// checkInit checks that dew-init runs without libraries, as in any root file system.
func checkInit(path string) finding {
	const remedy = "run make build, which puts dew-init into the folder of dewd, or set its path with --init"
	f, err := elf.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return bad(path+" does not exist", remedy)
	}
	if err != nil {
		return bad(fmt.Sprintf("%s is not an executable program: %v", path, err), remedy)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return bad(path+" is not statically linked", "build it with CGO_ENABLED=0 (make build)")
		}
	}
	return good("%s", path)
}

// firstUserUID is the first UID that Debian assigns to people.
const firstUserUID = 1000

func appUserRule(passwd string, uid int) finding {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) < 7 || f[2] != strconv.Itoa(uid) || f[0] == "vcap" {
			continue
		}
		if shell := filepath.Base(f[6]); uid >= firstUserUID && shell != "nologin" && shell != "false" {
			return warn(fmt.Sprintf("user ID %d belongs to %s, who can log in: a process that escapes its container could read the files of this user", uid, f[0]), "choose another user ID with --app-uid")
		}
		return warn(fmt.Sprintf("user ID %d belongs to %s", uid, f[0]), "choose another user ID with --app-uid")
	}
	return good("no user has the ID %d", uid)
}

func checkNames(ctx context.Context, m machine) finding {
	name := "doctor." + m.cfg.Domain
	text, err := m.program(ctx, "getent", "ahosts", name)
	return namesRule(name, text, err)
}

func namesRule(name, text string, err error) finding {
	if errors.Is(err, exec.ErrNotFound) {
		return warn("program getent not found: cannot check whether "+name+" resolves", "install getent; curl and browsers resolve *.localhost without it")
	}
	fields := strings.Fields(text)
	if err != nil || len(fields) == 0 {
		return warn(name+" does not resolve: only curl and browsers resolve *.localhost", "run make setup, or install libnss-myhostname")
	}
	a, err := netip.ParseAddr(fields[0])
	if err != nil || !a.IsLoopback() {
		return warn(name+" resolves to "+fields[0]+", not to this machine", "set a domain that resolves to this machine with --domain")
	}
	return good("%s resolves to %s", name, a)
}

// watchesNeeded is enough for the capture files of 1000 processes.
const (
	instancesNeeded = 16
	watchesNeeded   = 8192
)

func inotifyRule(instances, watches string) finding {
	i, err1 := strconv.Atoi(strings.TrimSpace(instances))
	w, err2 := strconv.Atoi(strings.TrimSpace(watches))
	if err1 != nil || err2 != nil {
		return warn("cannot read the inotify limits", "check that fs.inotify.max_user_watches is large enough for many apps")
	}
	if i < instancesNeeded || w < watchesNeeded {
		return warn(fmt.Sprintf("the limits are low: %d instances, %d watches", i, w),
			fmt.Sprintf("sysctl fs.inotify.max_user_instances=128 fs.inotify.max_user_watches=%d", 8*watchesNeeded))
	}
	return good("%d instances, %d watches", i, w)
}

// findDaemon requests the root from the daemon of --run, for the other checks. If
// there is none, it looks for other daemons.
func (m *machine) findDaemon(ctx context.Context) {
	m.start = ": start dewd with systemctl start dew, make run in a checkout, or dewd"
	m.others = slices.DeleteFunc(client.Daemons(), func(run string) bool { return run == m.cfg.Run })
	if served, err := folders.IsServed(filepath.Join(m.cfg.Run, socketName)); err != nil || !served {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	c, err := client.New(client.Options{Run: m.cfg.Run, UserAgent: "dewd doctor"})
	if err != nil {
		return
	}
	if st, err := c.Daemon().Status(ctx); err == nil {
		m.status, m.cfg.Root, m.cfg.Domain = &st, st.Root, st.Domain
	}
}

func quotasRule(m machine) finding {
	if m.status == nil || len(m.status.OverQuota) == 0 {
		return good("no org or space uses more than its quota allows")
	}
	return warn(strings.Join(m.status.OverQuota, "; "), "What runs stays running. To allow more, raise the quota: dew update-org-quota or dew update-space-quota")
}

func daemonRule(m machine) finding {
	pid := folders.HolderOf(filepath.Join(m.cfg.Root, folders.RootLock))
	switch {
	case m.status != nil:
		return good("dewd %s with pid %d runs on %s, socket %s", m.status.Version, m.status.PID, m.cfg.Root, filepath.Join(m.cfg.Run, socketName))
	case pid != "":
		return good("dewd with pid %s runs on %s", pid, m.cfg.Root)
	case len(m.others) > 0:
		return warn(fmt.Sprintf("no dewd runs on %s; found a dewd at %s", m.cfg.Root, strings.Join(m.others, ", ")), "export DEW_RUN="+m.others[0])
	}
	return good("no dewd runs on %s%s", m.cfg.Root, m.start)
}
