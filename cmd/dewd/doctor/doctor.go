// Package doctor checks whether a machine meets the requirements of dewd, and says what
// to do about what is missing.
//
//	doctor.go  the list of checks, their results   try.go  the checks that try an operation
package doctor

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

	"github.com/dewrun/dew/api/client"
	v3 "github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cmd/dewd/folders"
	"github.com/dewrun/dew/runtime/cgroup"
)

// Limit is the limit of the time of one check, so that doctor never hangs.
const Limit = 10 * time.Second

// The levels of a Finding. Only FAIL means that dewd cannot run apps.
const (
	OK      = "ok"
	Warning = "warn"
	Fail    = "FAIL"
)

// Finding is the result of one check, and what to do about it.
type Finding = v3.Finding

// Good returns a result without a problem.
func Good(format string, args ...any) Finding {
	return Finding{Level: OK, What: fmt.Sprintf(format, args...)}
}

// Warn returns a problem with which dewd can run apps all the same.
func Warn(what, do string) Finding { return Finding{Level: Warning, What: what, Do: do} }

// Bad returns a problem with which dewd cannot run apps.
func Bad(what, do string) Finding { return Finding{Level: Fail, What: what, Do: do} }

// Settings are the settings of the daemon that the checks are for.
type Settings struct {
	Root, Run, Domain            string
	Containerd, ContainerdBinary string
	DefaultContainerd            bool // whether Containerd is the default socket
	Init, Snapshotter            string
	DiskLimits, UserNS           bool // whether they are not turned off
	AppUID                       int
	Subnet                       netip.Prefix // not valid: dewd chooses one
	LogReserve                   int64
}

// Machine is the input of the checks.
type Machine struct {
	Settings
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
func (m Machine) read(path string) string {
	b, err := os.ReadFile(filepath.Join(m.slash, path))
	if err != nil {
		return ""
	}
	return string(b)
}

// New returns the machine that this program runs on.
func New(s Settings) Machine {
	return Machine{Settings: s, slash: "/", uid: os.Geteuid(), program: output}
}

// Check is one check of the machine.
type Check struct {
	Name string
	Run  func(ctx context.Context, m Machine) Finding
}

// Examine runs all checks in the order of the output: user, kernel, programs, folders.
// own are the checks of the daemon's own parts. Without root, it runs only the first,
// because the results of the others say nothing about dewd then.
func (m Machine) Examine(ctx context.Context, own ...Check) []Finding {
	return m.examine(ctx, m.checks(own))
}

func (m Machine) checks(own []Check) []Check {
	all := []Check{
		{"user", func(_ context.Context, m Machine) Finding { return userRule(m.uid) }},
		{"kernel", func(_ context.Context, m Machine) Finding { return kernelRule(m.read("/proc/sys/kernel/osrelease")) }},
		{"cgroups", func(_ context.Context, m Machine) Finding { return cgroupRule(m) }},
		{"seccomp", func(_ context.Context, m Machine) Finding { return seccompRule(m.read("/proc/self/status")) }},
		{"overlayfs", tryOverlay},
		{"network", tryNetwork},
		{"containerd", checkContainerd},
		{"runc", checkRunc},
		{"dew-init", func(_ context.Context, m Machine) Finding { return checkInit(m.Init) }},
		{"app user", func(_ context.Context, m Machine) Finding { return appUserRule(m.read("/etc/passwd"), m.AppUID) }},
		{"names", checkNames},
		{"subnet", checkSubnet},
		{"disk", checkDisk},
		{"disk limits", tryDiskLimits},
		{"userns", tryUsers},
		{"hole punching", tryPunch},
		{"inotify", func(_ context.Context, m Machine) Finding {
			return inotifyRule(m.read("/proc/sys/fs/inotify/max_user_instances"), m.read("/proc/sys/fs/inotify/max_user_watches"))
		}},
	}
	if m.uid != 0 {
		return all[:1]
	}
	return slices.Concat(all, own, []Check{
		{"addresses", func(_ context.Context, m Machine) Finding { return addressesRule(m) }},
		{"quotas", func(_ context.Context, m Machine) Finding { return quotasRule(m) }},
		{"policies", func(_ context.Context, m Machine) Finding { return policiesRule(m) }},
		{"daemon", func(_ context.Context, m Machine) Finding { return daemonRule(m) }},
	})
}

// ExamineCluster runs the checks of a daemon whose instances run in a cluster. found are
// the results about the cluster. Of this machine, only the folders of dewd matter.
func (m Machine) ExamineCluster(ctx context.Context, found []Finding, own ...Check) []Finding {
	return append(slices.Clone(found), m.examine(ctx, slices.Concat([]Check{
		{"dew-init", func(_ context.Context, m Machine) Finding { return checkInit(m.Init) }},
		{"disk", checkDisk},
		{"hole punching", tryPunch},
	}, own, []Check{
		{"addresses", func(_ context.Context, m Machine) Finding { return addressesRule(m) }},
		{"quotas", func(_ context.Context, m Machine) Finding { return quotasRule(m) }},
		{"daemon", func(_ context.Context, m Machine) Finding { return daemonRule(m) }},
	}))...)
}

func (m Machine) examine(ctx context.Context, list []Check) []Finding {
	var found []Finding
	for _, c := range list {
		bounded, cancel := context.WithTimeout(ctx, Limit)
		f := c.Run(bounded, m)
		cancel()
		f.Name = c.Name
		found = append(found, f)
	}
	return found
}

// Failed reports whether a check failed.
func Failed(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Level == Fail })
}

// Print writes the results, as text or as JSON.
func Print(w io.Writer, found []Finding, asJSON bool) error {
	if asJSON {
		return printJSON(w, found)
	}
	return printText(w, found)
}

func printText(w io.Writer, found []Finding) error {
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
func summary(found []Finding) string {
	count := func(level string) (n int) {
		for _, f := range found {
			if f.Level == level {
				n++
			}
		}
		return n
	}
	failed, warned := count(Fail), count(Warning)
	if failed+warned == 0 {
		return fmt.Sprintf("checks: %d, all ok", len(found))
	}
	return fmt.Sprintf("checks: %d, warnings: %d, failed: %d", len(found), warned, failed)
}

func printJSON(w io.Writer, found []Finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(found)
}

// oneLine puts joined errors on one line.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	b, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(b), err
}

func userRule(uid int) Finding {
	if uid != 0 {
		return Bad(fmt.Sprintf("dewd doctor runs as user ID %d, but the other checks need root", uid), "sudo dewd doctor")
	}
	return Good("root")
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

func kernelRule(release string) Finding {
	release = strings.TrimSpace(release)
	n, ok := findNumber(release)
	switch {
	case !ok:
		return Bad("no kernel release found: this is not Linux", "run dewd on Linux")
	case n.before(number{5, 4}):
		return Bad(release+" is older than 5.4", "install a newer kernel")
	case n.before(number{5, 14}):
		return Warn(release+" has no cgroup.kill: dewd kills processes one by one", "install Linux 5.14 or newer, where dewd kills all processes of a cgroup at once")
	}
	return Good("%s", release)
}

// neededV2 and neededV1 are the cgroup controllers that leaves need.
var (
	neededV2 = []string{"cpu", "memory", "pids"}
	neededV1 = []string{"cpu", "memory", "pids", "freezer"}
)

func cgroupRule(m Machine) Finding {
	v1, unified := cgroup.Mounts(m.read("/proc/self/mountinfo"))
	if len(v1) == 0 && unified == "" {
		return Bad("no cgroup hierarchy is mounted", "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd")
	}
	if len(v1) == 0 {
		have := strings.Fields(m.read(filepath.Join(unified, "cgroup.controllers")))
		if lack := without(neededV2, have); len(lack) > 0 {
			return Bad("v2 without "+strings.Join(lack, ", "), "enable these controllers in cgroup.subtree_control of the parent cgroup, or on the kernel command line")
		}
		return Good("v2")
	}
	if lack := without(neededV1, v1); len(lack) > 0 {
		return Bad("v1 without "+strings.Join(lack, ", "), "mount these controllers under /sys/fs/cgroup, or boot with cgroups v2 (systemd.unified_cgroup_hierarchy=1)")
	}
	if unified == "" {
		return Good("v1")
	}
	return Good("v1 and unified (hybrid)")
}

func without(needed, have []string) []string {
	return slices.DeleteFunc(slices.Clone(needed), func(n string) bool { return slices.Contains(have, n) })
}

func seccompRule(status string) Finding {
	if !strings.Contains(status, "\nSeccomp:") {
		return Bad("the kernel does not support seccomp", "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	return Good("filters")
}

// checkContainerd checks the containerd that dewd would use. This is the private one of
// this root, otherwise that of the machine, otherwise a new private one.
func checkContainerd(ctx context.Context, m Machine) Finding {
	socket, private := m.Containerd, false
	if _, err := os.Stat(filepath.Join(m.Root, "containerd")); err == nil {
		socket, private = filepath.Join(m.Run, "containerd", "containerd.sock"), true
	}
	found, err := serverVersion(ctx, socket)
	if err == nil {
		return containerdRule(found, "at "+socket)
	}
	if !private && !errors.Is(err, os.ErrNotExist) {
		return Bad(oneLine(fmt.Errorf("containerd does not respond at %s: %w", socket, err)), "start containerd, remove the socket if no containerd uses it, or set another socket with --containerd")
	}
	if !private && !m.DefaultContainerd {
		return Bad("the containerd socket "+socket+" does not exist", "start containerd, or omit --containerd: then dewd starts a private containerd")
	}
	text, err := m.program(ctx, m.ContainerdBinary, "--version")
	if err != nil {
		return Bad("found neither the containerd socket "+m.Containerd+" nor the program "+m.ContainerdBinary, "run make setup, install containerd, or set the path of its program with --containerd-binary")
	}
	return containerdRule(text, "dewd starts it as private containerd")
}

func containerdRule(text, where string) Finding {
	n, ok := findNumber(text)
	if !ok {
		return Warn("unknown version, "+where, "check that containerd is 1.6 or newer")
	}
	if n.before(number{1, 6}) {
		return Bad(fmt.Sprintf("%d.%d is older than 1.6 (%s)", n.major, n.minor, where), "install a newer containerd")
	}
	return Good("%d.%d, %s", n.major, n.minor, where)
}

func checkRunc(ctx context.Context, m Machine) Finding {
	text, err := m.program(ctx, "runc", "--version")
	if err != nil {
		return Bad("program runc not found in PATH", "run make setup, or install runc")
	}
	return runcRule(text)
}

func runcRule(text string) Finding {
	n, ok := findNumber(text)
	if !ok {
		return Warn("unknown version", "check that runc is 1.1 or newer")
	}
	if n.before(number{1, 1}) {
		return Bad(fmt.Sprintf("%d.%d is older than 1.1", n.major, n.minor), "install a newer runc")
	}
	return Good("%d.%d", n.major, n.minor)
}

// checkInit checks that dew-init runs without libraries, as in any root file system.
func checkInit(path string) Finding {
	const remedy = "run make build, which puts dew-init into the folder of dewd, or set its path with --init"
	f, err := elf.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return Bad(path+" does not exist", remedy)
	}
	if err != nil {
		return Bad(fmt.Sprintf("%s is not an executable program: %v", path, err), remedy)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return Bad(path+" is not statically linked", "build it with CGO_ENABLED=0 (make build)")
		}
	}
	return Good("%s", path)
}

// firstUserUID is the first UID that Debian assigns to people.
const firstUserUID = 1000

func appUserRule(passwd string, uid int) Finding {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) < 7 || f[2] != strconv.Itoa(uid) || f[0] == "vcap" {
			continue
		}
		if shell := filepath.Base(f[6]); uid >= firstUserUID && shell != "nologin" && shell != "false" {
			return Warn(fmt.Sprintf("user ID %d belongs to %s, who can log in: a process that escapes its container could read the files of this user", uid, f[0]), "choose another user ID with --app-uid")
		}
		return Warn(fmt.Sprintf("user ID %d belongs to %s", uid, f[0]), "choose another user ID with --app-uid")
	}
	return Good("no user has the ID %d", uid)
}

func checkNames(ctx context.Context, m Machine) Finding {
	name := "doctor." + m.Domain
	text, err := m.program(ctx, "getent", "ahosts", name)
	return namesRule(name, text, err)
}

func namesRule(name, text string, err error) Finding {
	if errors.Is(err, exec.ErrNotFound) {
		return Warn("program getent not found: cannot check whether "+name+" resolves", "install getent; curl and browsers resolve *.localhost without it")
	}
	fields := strings.Fields(text)
	if err != nil || len(fields) == 0 {
		return Warn(name+" does not resolve: only curl and browsers resolve *.localhost", "run make setup, or install libnss-myhostname")
	}
	a, err := netip.ParseAddr(fields[0])
	if err != nil || !a.IsLoopback() {
		return Warn(name+" resolves to "+fields[0]+", not to this machine", "set a domain that resolves to this machine with --domain")
	}
	return Good("%s resolves to %s", name, a)
}

// watchesNeeded is enough for the capture files of 1000 processes.
const (
	instancesNeeded = 16
	watchesNeeded   = 8192
)

func inotifyRule(instances, watches string) Finding {
	i, err1 := strconv.Atoi(strings.TrimSpace(instances))
	w, err2 := strconv.Atoi(strings.TrimSpace(watches))
	if err1 != nil || err2 != nil {
		return Warn("cannot read the inotify limits", "check that fs.inotify.max_user_watches is large enough for many apps")
	}
	if i < instancesNeeded || w < watchesNeeded {
		return Warn(fmt.Sprintf("the limits are low: %d instances, %d watches", i, w),
			fmt.Sprintf("sysctl fs.inotify.max_user_instances=128 fs.inotify.max_user_watches=%d", 8*watchesNeeded))
	}
	return Good("%d instances, %d watches", i, w)
}

// FindDaemon requests the status of the daemon of --run, for the other checks. They look
// at its root, unless the user gave another one. Without a root it also looks for other
// daemons.
func (m *Machine) FindDaemon(ctx context.Context, rootGiven bool) {
	if m.uid != 0 {
		return // only root can read its socket
	}
	if !rootGiven {
		m.findOthers()
	}
	if served, err := folders.IsServed(filepath.Join(m.Run, folders.SocketName)); err != nil || !served {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	c, err := client.New(client.Options{Run: m.Run, UserAgent: "dewd doctor"})
	if err != nil {
		return
	}
	st, err := c.Daemon().Status(ctx)
	if err != nil || rootGiven && st.Root != m.Root {
		return
	}
	m.status, m.Root, m.Domain = &st, st.Root, st.Domain
}

// findOthers looks for daemons with other run folders.
func (m *Machine) findOthers() {
	m.start = ": start dewd with systemctl start dew, make run in a checkout, or dewd"
	m.others = slices.DeleteFunc(client.Daemons(), func(run string) bool { return run == m.Run })
}

// addressesRule reports what is wrong with the listeners of a running daemon.
func addressesRule(m Machine) Finding {
	switch {
	case m.status == nil:
		return Good("not checked: no dewd was found")
	case len(m.status.Warnings) > 0:
		return Warn(strings.Join(m.status.Warnings, "; "), "see --listen, --listen-tls and --router-tls in dewd --help")
	case m.status.TLS == nil:
		return Good("API %s, without TLS", m.status.API)
	}
	return Good("API %s; with TLS %s, routes %s", m.status.API, m.status.TLS.API, m.status.TLS.Router)
}

func quotasRule(m Machine) Finding {
	if m.status == nil || len(m.status.OverQuota) == 0 {
		return Good("no org or space uses more than its quota allows")
	}
	return Warn(strings.Join(m.status.OverQuota, "; "), "What runs stays running. To allow more, raise the quota: dew update-org-quota or dew update-space-quota")
}

// policiesRule names the stored security groups that take effect when network policies
// are turned on.
func policiesRule(m Machine) Finding {
	switch {
	case m.status == nil || m.status.NetworkPolicies == "":
		return Good("not checked: no dewd was found")
	case m.status.NetworkPolicies == "on":
		return Good("dewd enforces network policies and security groups")
	case len(m.status.InactiveGroups) == 0:
		return Warn("dewd does not enforce network policies and security groups; no security group is stored", "To enforce them: dewd --network-policies on")
	}
	return Warn("dewd does not enforce network policies and security groups. These stored security groups take effect with --network-policies on: "+strings.Join(m.status.InactiveGroups, ", "),
		"Check their rules with dew security-group NAME, then start dewd with --network-policies on")
}

func daemonRule(m Machine) Finding {
	pid := folders.HolderOf(filepath.Join(m.Root, folders.RootLock))
	switch {
	case m.status != nil:
		return Good("dewd %s with pid %d runs on %s, socket %s", m.status.Version, m.status.PID, m.Root, filepath.Join(m.Run, folders.SocketName))
	case pid != "":
		return Good("dewd with pid %s runs on %s", pid, m.Root)
	case len(m.others) > 0:
		return Warn(fmt.Sprintf("no dewd runs on %s; found a dewd at %s", m.Root, strings.Join(m.others, ", ")), "export DEW_RUN="+m.others[0])
	}
	return Good("no dewd runs on %s%s", m.Root, m.start)
}
