package main

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cmd/dewd/cluster"
	"github.com/dewrun/dew/netpolicy/desired"
	"github.com/dewrun/dew/runtime/cgroup"
	"github.com/dewrun/dew/runtime/containerd"
	"github.com/dewrun/dew/runtime/policy"
)

// maxRunPath leaves room for the sockets below --run: a path has at most 107 bytes.
const maxRunPath = 64

// config holds the values of flags and environment variables.
type config struct {
	Root, Run         string
	Containerd        string // socket of containerd
	ContainerdBinary  string
	Init              string
	Snapshotter       string
	AppUID            int
	Subnet            netip.Prefix // not valid: dewd chooses one
	Listen, Router    string       // addresses of the API and of app routes
	ListenTLS         string       // address of the API over TLS (empty or off: disabled)
	ListenInsecure    bool         // the API can listen on a network without TLS
	RouterTLS         string       // address of app routes over TLS (empty or off: disabled)
	RouterCert        string       // certificate for both (empty: signed by dewd's own CA)
	RouterKey         string
	SSH               string        // address of the SSH server
	TCPPorts          app.PortRange // ports of TCP routes (empty: no TCP routes)
	StickyCookies     string        // comma-separated names of cookies for sticky sessions
	Domain, PublicURL string
	AllowHost         bool
	SeccompArches     string
	LogReserve        size
	LogBacklog        size
	LogRetention      size
	LogAge            time.Duration // 0: only the size is limited
	LogJournal        bool
	DiskLimits        string
	UserNS            string // on, off, or empty for the setting of the root
	NetworkPolicies   string // on, off, or empty for the setting of the root
	CrashFiles        size   // limit of the files of all crashed instances (0: none are stored)
	PlacementCheck    string
	EmptyRouteStatus  string
	CPULimit          cgroup.Cores
	SpareInstances    bool // keep a container ready for each app
	Policy            policy.Policy
	Staging           staging
	Marketplace       serviceFlags
	Mailing           mailing
	Outbound          outbound
	Cluster           cluster.Flags
	LogFormat         string
	LogLevel          slog.Level

	// Called after each commit of the store and each call of containerd; nil: not
	// called. No flag sets them. Tests use them to kill the program at such a moment.
	committed, called func()
}

func defaultConfig() config {
	return config{
		Root: "/var/lib/dew", Run: "/run/dew",
		Containerd: "/run/containerd/containerd.sock", ContainerdBinary: "containerd",
		Snapshotter: "overlayfs", AppUID: 2000, Listen: "127.0.0.1:8484", Router: "127.0.0.1:8080", ListenTLS: "127.0.0.1:8485", RouterTLS: "127.0.0.1:8443", SSH: "127.0.0.1:2222", Domain: "dew.localhost", StickyCookies: "JSESSIONID", TCPPorts: defaultTCPPorts,
		SeccompArches: "native", DiskLimits: "on", PlacementCheck: "on", EmptyRouteStatus: "503", LogReserve: 512 << 20, LogBacklog: 64 << 20, LogRetention: 256 << 20, CrashFiles: 1 << 30,
		Policy: policy.Policy{}.WithDefaults(), Staging: defaultStaging(), Marketplace: serviceFlags{BindingsOn: onRestage}, Mailing: defaultMailing(), Cluster: cluster.Default(), LogFormat: "text",
	}
}

// allFlags returns the flags of the daemon itself.
func (c *config) allFlags() []cli.Flag {
	return slices.Concat(c.cellFlags(), c.policyFlags(), c.Staging.flags(), c.Marketplace.flags(), c.Mailing.flags())
}

// cellFlags returns the flags that identify this daemon and its folders. doctor and
// teardown have the same flags.
func (c *config) cellFlags() []cli.Flag {
	return append([]cli.Flag{
		text(&c.Root, "root", "Root `folder` for all state; only one dewd can use it"),
		text(&c.Run, "run", "Run `folder` for sockets and other run-time files"),
		text(&c.Containerd, "containerd", "Path of containerd's `socket`; if the default socket does not exist, dewd starts a private containerd"),
		text(&c.ContainerdBinary, "containerd-binary", "Name or path of the `program` that dewd starts as private containerd"),
		text(&c.Init, "init", "File `path` of dew-init (default: the folder of dewd)"),
		text(&c.Snapshotter, "snapshotter", "Containerd snapshotter `name`"),
		&cli.IntFlag{Name: "app-uid", EnvVars: env("app-uid"), Destination: &c.AppUID, Value: c.AppUID, Usage: "User and group `id` that apps run as"},
		value(&subnet{&c.Subnet}, "subnet", "IPv4 `network` of the instances (default: the first free /20 of 10.201.0.0/16)"),
		&cli.BoolFlag{Name: "allow-host", EnvVars: env("allow-host"), Destination: &c.AllowHost, Usage: "Let instances reach every port of this machine"},
		text(&c.SeccompArches, "seccomp-arches", "System call tables that apps can use, `native|all`: all also allows 32-bit programs, and apps start more slowly"),
		text(&c.Listen, "listen", "Listen `address` of the API"),
		text(&c.Router, "router", "Listen `address` of app routes"),
		text(&c.RouterTLS, "router-tls", "Listen `address` of app routes over TLS, or off"),
		text(&c.ListenTLS, "listen-tls", "Listen `address` of the API over TLS, or off"),
		&cli.BoolFlag{Name: "listen-insecure", EnvVars: env("listen-insecure"), Destination: &c.ListenInsecure, Usage: "Let clients on a network use the API without TLS, at --listen and --router"},
		text(&c.RouterCert, "router-cert", "Certificate `file` for --router-tls and --listen-tls (default: dewd creates certificates, signed by ROOT/keys/router-ca.pem)"),
		text(&c.RouterKey, "router-key", "Private key `file` of --router-cert"),
		value(&c.TCPPorts, "tcp-ports", "Range of ports for TCP routes, `first-last`, at the host of --router; empty for no TCP routes"),
		text(&c.SSH, "ssh", "Listen `address` of the SSH server for instances"),
		text(&c.EmptyRouteStatus, "empty-route-status", "Status of a request to a route without ready instances, `404|503`"),
		text(&c.StickyCookies, "sticky-cookies", "Session cookie `names`, separated by commas: the router sends a request with such a cookie to the instance that set it"),
		text(&c.Domain, "domain", "Default `domain` of app routes: http://APP.domain"),
		text(&c.PublicURL, "public-url", "API `URL` that apps get in VCAP_APPLICATION (default: http:// and --listen)"),
		value(&c.LogReserve, "log-reserve", "Free `bytes` to keep on the disk of --root: with less free space, dewd pauses apps that print a lot"),
		value(&c.LogBacklog, "log-backlog", "Pause a process while more than this number of `bytes` of its output are not stored yet"),
		value(&c.LogRetention, "log-retention", "Maximum `bytes` of log lines to keep per app"),
		duration(&c.LogAge, "log-age", "Delete log lines that are older than this `time`; with 0, only --log-retention limits them"),
		&cli.BoolFlag{Name: "log-journal", EnvVars: env("log-journal"), Destination: &c.LogJournal, Usage: "Copy the log lines of apps to the systemd journal"},
		value(&c.CrashFiles, "crash-files", "Maximum `bytes` of files of crashed instances to keep, for all apps together; 0 keeps none"),
		&cli.BoolFlag{Name: "spare-instances", EnvVars: env("spare-instances"), Destination: &c.SpareInstances, Usage: "Keep a container ready for each app, so that it runs again sooner after a crash; together they use at most 5 % of the memory of this machine"},
		value(&c.CPULimit, "cpu-limit", "CPU time that one instance, task, build or built-in service can use, in `cores` such as 1.5 (default: no limit)"),
		text(&c.PlacementCheck, "placement-check", "Do not start an instance whose memory limit is above the memory of this machine, `on|off`"),
		text(&c.DiskLimits, "disk-limits", "Enforce the disk quota of instances and tasks, `on|off`; running instances keep their limit"),
		text(&c.UserNS, "userns", "Run new instances and tasks in user namespaces of their own, `on|off` (default: on for a new root, off for a root of an older dewd)"),
		text(&c.NetworkPolicies, "network-policies", "Enforce network policies and security groups, `on|off` (default: on for a new root, off for a root of an older dewd)"),
		text(&c.LogFormat, "log-format", "Format of dewd's own log on stderr, `text|json`"),
		value(&level{&c.LogLevel}, "log-level", "Lowest level of dewd's own log, `debug|info|warn|error`"),
		text(&c.Cluster.Engine, "engine", "Where instances run, `containerd|kubernetes`: on this machine or as Pods in a cluster"),
		text(&c.Cluster.Kubeconfig, "kubeconfig", "Kubeconfig `file` of the cluster for --engine kubernetes (default: the cluster that dewd runs in)"),
		text(&c.Cluster.Namespace, "namespace", "Namespace `name` for the Pods of instances"),
		text(&c.Cluster.Registry, "registry", "Registry and folder for the images of Pods, `host/folder`: dewd pushes to it, and the nodes pull from it"),
		text(&c.Cluster.PullSecret, "pull-secret", "Secret `name` with which the nodes log in to --registry"),
		text(&c.Cluster.StorageClass, "storage-class", "StorageClass `name` of the volumes of databases in a cluster (default: the default one of the cluster)"),
		text(&c.Cluster.AgentListen, "agent-listen", "Listen `address` for the agents in Pods"),
		text(&c.Cluster.AgentAddress, "agent-address", "Address of --agent-listen for Pods, `host:port` (default in the cluster: that of the Service dewd-agents)"),
	}, c.Outbound.flags()...)
}

// policyFlags returns the flags for stopping and restarting instances.
func (c *config) policyFlags() []cli.Flag {
	p := &c.Policy
	return []cli.Flag{
		duration(&p.KillDelay, "kill-delay", "Wait this `time` between SIGTERM and SIGKILL"),
		&cli.IntFlag{Name: "immediate-restarts", EnvVars: env("immediate-restarts"), Destination: &p.ImmediateRestarts, Value: p.ImmediateRestarts, Usage: "How often dewd restarts a crashed instance without a wait (`count`)"},
		duration(&p.FirstBackoff, "backoff-first", "Wait this `time` before the first restart after the immediate restarts; each later wait is twice as long"),
		duration(&p.MaxBackoff, "backoff-max", "Longest wait before a restart (`time`)"),
		&cli.IntFlag{Name: "give-up-after", EnvVars: env("give-up-after"), Destination: &p.MaxCrashes, Value: p.MaxCrashes, Usage: "Crashes in a row after which dewd stops restarting an instance (`count`)"},
		&cli.IntFlag{Name: "health-failures", EnvVars: env("health-failures"), Destination: &p.HealthFailures, Value: p.HealthFailures, Usage: "Failed health checks in a row after which an instance is unhealthy (`count`); Cloud Foundry: 1"},
		&cli.IntFlag{Name: "crash-records", EnvVars: env("crash-records"), Destination: &p.CrashRecords, Value: p.CrashRecords, Usage: "How many of the newest exit records, with their events, to keep per process and instance index (`count`, 1 to 10000)"},
		duration(&p.HealthyReset, "healthy-after", "Reset the crash count of an instance that was healthy for this `time`"),
	}
}

// env returns the environment variable of a flag.
func env(flag string) []string {
	return []string{"DEW_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}
}

func text(v *string, name, usage string) cli.Flag {
	return &cli.StringFlag{Name: name, EnvVars: env(name), Destination: v, Value: *v, Usage: usage}
}

func duration(v *time.Duration, name, usage string) cli.Flag {
	return &cli.DurationFlag{Name: name, EnvVars: env(name), Destination: v, Value: *v, Usage: usage}
}

// textValue is a value with its own text form.
type textValue interface {
	encoding.TextUnmarshaler
	fmt.Stringer
}

// asFlag makes a textValue usable as a flag.
type asFlag struct{ textValue }

func (f asFlag) Set(s string) error { return f.UnmarshalText([]byte(s)) }

func value(v textValue, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, EnvVars: env(name), Value: asFlag{v}, Usage: usage}
}

// subnet is the text form of a network, or of no network.
type subnet struct{ *netip.Prefix }

// UnmarshalText accepts the empty text for no network.
func (s *subnet) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*s.Prefix = netip.Prefix{}
		return nil
	}
	p, err := netip.ParsePrefix(string(b))
	if err != nil || !p.Addr().Is4() {
		return errors.New("not an IPv4 network such as 10.201.16.0/20")
	}
	*s.Prefix = p
	return nil
}

func (s *subnet) String() string {
	if s.Prefix == nil || !s.IsValid() {
		return ""
	}
	return s.Prefix.String()
}

// level is a slog.Level without the arithmetic ("info+2") of its text form.
type level struct{ *slog.Level }

// UnmarshalText accepts the four names.
func (l *level) UnmarshalText(b []byte) error {
	known := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	v, ok := known[strings.ToLower(string(b))]
	if !ok {
		return errors.New("not one of debug, info, warn, error")
	}
	*l.Level = v
	return nil
}

func (l *level) String() string {
	if l.Level == nil {
		return ""
	}
	return strings.ToLower(l.Level.String())
}

// size is a number of bytes, written as 64M or 1G; M means MiB.
type size int64

var sizeForm = regexp.MustCompile(`^([0-9]{1,18})([KMGT]?)(I?B)?$`)

// UnmarshalText accepts the output of String, and the usual spellings.
func (s *size) UnmarshalText(b []byte) error {
	m := sizeForm.FindStringSubmatch(strings.ToUpper(strings.TrimSpace(string(b))))
	if m == nil {
		return errors.New("not a size such as 512M or 2G")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return err
	}
	shift := map[string]uint{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[m[2]]
	if n > math.MaxInt64>>shift {
		return errors.New("larger than the maximum of 8388607T")
	}
	*s = size(n << shift)
	return nil
}

func (s *size) String() string {
	n := int64(*s)
	for _, u := range []struct {
		shift uint
		unit  string
	}{{40, "T"}, {30, "G"}, {20, "M"}, {10, "K"}} {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// complete makes paths absolute and finds dew-init next to the program.
func (c *config) complete() error {
	for _, p := range []*string{&c.Root, &c.Run} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("cannot find the absolute path of %s: %w", *p, err)
		}
		// A root must have one name: bridge, cgroups and namespace depend on it.
		if *p, err = resolved(abs); err != nil {
			return err
		}
	}
	if c.Init != "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find the path of dewd: %w (set the path of dew-init with --init)", err)
	}
	c.Init = filepath.Join(filepath.Dir(self), "dew-init")
	return nil
}

// resolved follows the symbolic links of a path, as far as it exists.
func resolved(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}
	if errors.Is(err, os.ErrPermission) {
		return path, nil // not root: a later check reports that with a better message
	}
	if !errors.Is(err, os.ErrNotExist) || path == filepath.Dir(path) {
		return "", fmt.Errorf("cannot resolve the symbolic links of %s: %w", path, err)
	}
	parent, err := resolved(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

var domainForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// validate reports all errors, each with its flag.
func (c *config) validate() error {
	var errs []error
	must := func(ok bool, flag, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("--"+flag+": "+format, args...))
		}
	}
	must(c.Root != "/", "root", "the folder cannot be / (choose a folder that only this dewd uses)")
	must(c.Run != "/", "run", "the folder cannot be / (choose a folder that only this dewd uses)")
	must(c.Root != c.Run, "run", "%s is also the folder of --root (choose another folder)", c.Run)
	must(len(c.Run) <= maxRunPath, "run", "the path has %d characters, which is too long for sockets in it (at most %d)", len(c.Run), maxRunPath)
	must(c.Containerd != "", "containerd", "the value is empty (set the path of a socket)")
	must(c.Snapshotter != "", "snapshotter", "the value is empty (the default is overlayfs)")
	must(c.AppUID > 0 && c.AppUID < math.MaxInt32, "app-uid", "%d is not a valid ID of a user without root permissions (1 to %d)", c.AppUID, math.MaxInt32-1)
	if c.Subnet.IsValid() {
		must(c.Subnet.Masked() == c.Subnet, "subnet", "%s is not the first address of the network (use %s)", c.Subnet, c.Subnet.Masked())
		must(c.Subnet.Bits() >= 8 && c.Subnet.Bits() <= 28, "subnet", "the prefix length of %s is out of range (/8 to /28)", c.Subnet)
	}
	must(oneOf(c.SeccompArches, "native", "all"), "seccomp-arches", "%q is not one of native, all", c.SeccompArches)
	must(oneOf(c.PlacementCheck, "on", "off"), "placement-check", "%q is not one of on, off", c.PlacementCheck)
	must(oneOf(c.EmptyRouteStatus, "404", "503"), "empty-route-status", "%q is not one of 404, 503", c.EmptyRouteStatus)
	must(oneOf(c.DiskLimits, "on", "off"), "disk-limits", "%q is not one of on, off", c.DiskLimits)
	must(c.UserNS == "" || oneOf(c.UserNS, "on", "off"), "userns", "%q is not one of on, off", c.UserNS)
	must(c.NetworkPolicies == "" || oneOf(c.NetworkPolicies, desired.On, desired.Off), "network-policies", "%q is not one of on, off", c.NetworkPolicies)
	must(oneOf(c.LogFormat, "text", "json"), "log-format", "%q is not one of text, json", c.LogFormat)
	must(len(c.Domain) <= 253 && domainForm.MatchString(c.Domain), "domain", "%q is not a valid domain in lower case, such as dew.localhost", c.Domain)
	must(validAddress(c.Listen), "listen", "%q is not of the form host:port", c.Listen)
	must(validAddress(c.Router), "router", "%q is not of the form host:port", c.Router)
	must(isOff(c.RouterTLS) || validAddress(c.RouterTLS), "router-tls", "%q is not of the form host:port, and not off", c.RouterTLS)
	must(isOff(c.ListenTLS) || validAddress(c.ListenTLS), "listen-tls", "%q is not of the form host:port, and not off", c.ListenTLS)
	must((c.RouterCert == "") == (c.RouterKey == ""), "router-cert", "--router-cert and --router-key must be set together")
	must(c.RouterCert == "" || !isOff(c.RouterTLS) || !isOff(c.ListenTLS), "router-cert", "--router-tls and --listen-tls are off (set a listen address with --router-tls)")
	must(validAddress(c.SSH), "ssh", "%q is not of the form host:port", c.SSH)
	must(c.PublicURL == "" || validPublicURL(c.PublicURL), "public-url", "%q is not of the form http://host[:port] or https://host[:port], without a path", c.PublicURL)
	must(c.LogReserve > 0, "log-reserve", "the value cannot be 0, because apps that filled the disk could not continue")
	must(c.LogBacklog >= 1<<20, "log-backlog", "%s is less than 1M", &c.LogBacklog)
	must(c.LogRetention >= 1<<20, "log-retention", "%s is less than 1M", &c.LogRetention)
	must(!c.SpareInstances || !c.Cluster.Used(), "spare-instances", "dewd cannot do this with --engine kubernetes (remove the flag)")
	must(c.LogAge >= 0, "log-age", "%s is less than 0", c.LogAge)
	errs = slices.Concat(errs, validatePolicy(c.Policy), c.Staging.validate(), c.Marketplace.validate(), c.Mailing.validate(), c.Cluster.Validate())
	return errors.Join(errs...)
}

// maxCrashRecords limits the records that a request for crashes or events reads.
const maxCrashRecords = 10_000

func validatePolicy(p policy.Policy) []error {
	var errs []error
	for _, d := range []struct {
		flag string
		d    time.Duration
	}{
		{"kill-delay", p.KillDelay},
		{"backoff-first", p.FirstBackoff},
		{"backoff-max", p.MaxBackoff},
		{"healthy-after", p.HealthyReset},
	} {
		if d.d <= 0 {
			errs = append(errs, fmt.Errorf("--%s: %s is not greater than 0", d.flag, d.d))
		}
	}
	if p.FirstBackoff > p.MaxBackoff {
		errs = append(errs, fmt.Errorf("--backoff-first: %s is longer than --backoff-max (%s)", p.FirstBackoff, p.MaxBackoff))
	}
	// Zero would mean the default.
	if p.ImmediateRestarts < 1 {
		errs = append(errs, fmt.Errorf("--immediate-restarts: %d is less than 1", p.ImmediateRestarts))
	}
	if p.MaxCrashes < 1 {
		errs = append(errs, fmt.Errorf("--give-up-after: %d is less than 1", p.MaxCrashes))
	}
	if p.HealthFailures < 1 {
		errs = append(errs, fmt.Errorf("--health-failures: %d is less than 1", p.HealthFailures))
	}
	if p.CrashRecords < 1 || p.CrashRecords > maxCrashRecords {
		errs = append(errs, fmt.Errorf("--crash-records: %d is out of range (1 to %d)", p.CrashRecords, maxCrashRecords))
	}
	return errs
}

func oneOf(s string, allowed ...string) bool {
	for _, a := range allowed {
		if s == a {
			return true
		}
	}
	return false
}

func validAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(port, 10, 16)
	return err == nil && perr == nil && host != "" && n <= math.MaxUint16
}

func validPublicURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return false
	}
	return oneOf(u.Scheme, "http", "https") && s == u.Scheme+"://"+u.Host
}

// stickyCookies returns the cookie names in the flag.
func (c *config) stickyCookies() []string {
	var names []string
	for name := range strings.SplitSeq(c.StickyCookies, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// crashed returns the limits for the files of crashed instances.
func (c config) crashed() containerd.Crashed {
	return containerd.Crashed{Dir: filepath.Join(c.Root, "crashed"), Bytes: int64(c.CrashFiles), Reserve: int64(c.LogReserve)}
}

// logger writes dewd's own log to stderr.
func (c *config) logger() *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}

// command turns a function of dewd into one of the cli package. It refuses unused
// arguments, and completes and checks the configuration.
func command(c *config, fn func(*cli.Context, config) error) cli.ActionFunc {
	return func(ctx *cli.Context) error {
		usage := func(format string, args ...any) error {
			return &failure{status: statusUsage, err: fmt.Errorf(format+" (dewd --help)", args...)}
		}
		if ctx.NArg() > 0 {
			return usage("unknown command or argument %q", ctx.Args().First())
		}
		// A command's own flags come last and win. Flags before its name would be
		// ignored without a message.
		if l := ctx.Lineage(); len(l) > 1 && l[1].NumFlags() > 0 {
			return usage("flags go after the command: dewd %s --%s …", ctx.Command.Name, l[1].LocalFlagNames()[0])
		}
		if err := c.complete(); err != nil {
			return infrastructure(err)
		}
		if err := c.validate(); err != nil {
			return usage("%w", err)
		}
		return fn(ctx, *c)
	}
}

// placementMemory returns the bytes of memory of this machine that the placement check
// compares with, or 0 for no check. In a cluster the scheduler of Kubernetes checks.
func (c *config) placementMemory() int64 {
	if c.Cluster.Used() || c.PlacementCheck == "off" {
		return 0
	}
	return machineMemory()
}

// machineMemory returns the bytes of memory of this machine, 0 if that is unknown.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// A spare instance is a shim, and for each process dew-init. All of them together use a
// part of the memory of this machine.
const (
	spareMemory = 24 << 20
	sparesPart  = 20
)

// spares returns the limit of spare instances.
func (c *config) spares() int {
	if !c.SpareInstances {
		return 0
	}
	return max(1, int(machineMemory()/sparesPart/spareMemory))
}
