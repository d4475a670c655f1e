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

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/runtime/containerd"
	"github.com/dewrun/dew/runtime/supervisor"
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
	RouterTLS         string       // address of app routes over TLS (empty: disabled)
	RouterCert        string       // certificate for it (empty: signed by dewd's own CA)
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
	CrashFiles        size // limit of the files of all crashed instances (0: none are stored)
	Policy            supervisor.Policy
	Staging           staging
	Marketplace       serviceFlags
	Mailing           mailing
	Outbound          outbound
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
		Snapshotter: "overlayfs", AppUID: 2000, Listen: "127.0.0.1:8484", Router: "127.0.0.1:8080", SSH: "127.0.0.1:2222", Domain: "dew.localhost", StickyCookies: "JSESSIONID", TCPPorts: defaultTCPPorts,
		SeccompArches: "native", LogReserve: 512 << 20, LogBacklog: 64 << 20, LogRetention: 256 << 20, CrashFiles: 1 << 30,
		Policy: supervisor.Policy{}.WithDefaults(), Staging: defaultStaging(), Marketplace: serviceFlags{BindingsOn: onRestage}, Mailing: defaultMailing(), LogFormat: "text",
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
		text(&c.Root, "root", "`folder` of all state; one dewd per root"),
		text(&c.Run, "run", "`folder` of run-time files and sockets"),
		text(&c.Containerd, "containerd", "`socket` of containerd; when it is not there a private one is started under the root"),
		text(&c.ContainerdBinary, "containerd-binary", "`program` to start as the private containerd"),
		text(&c.Init, "init", "`path` of dew-init (default: beside dewd)"),
		text(&c.Snapshotter, "snapshotter", "`name` of the containerd snapshotter"),
		&cli.IntFlag{Name: "app-uid", EnvVars: env("app-uid"), Destination: &c.AppUID, Value: c.AppUID, Usage: "user and group `id` that apps run as"},
		value(&subnet{&c.Subnet}, "subnet", "IPv4 `network` of the instances (default: the first free /20 of 10.201.0.0/16)"),
		&cli.BoolFlag{Name: "allow-host", EnvVars: env("allow-host"), Destination: &c.AllowHost, Usage: "let instances reach every port of this machine"},
		text(&c.SeccompArches, "seccomp-arches", "`native|all`: system call tables of apps; all also runs 32-bit programs and starts slower"),
		text(&c.Listen, "listen", "`address` of the API"),
		text(&c.Router, "router", "`address` of app routes"),
		text(&c.RouterTLS, "router-tls", "`address` of app routes over TLS (default: none)"),
		text(&c.RouterCert, "router-cert", "`file` with the certificate for --router-tls (default: signed by ROOT/keys/router-ca.pem, which dewd makes)"),
		text(&c.RouterKey, "router-key", "`file` with the key of --router-cert"),
		value(&c.TCPPorts, "tcp-ports", "`first-last`: ports of TCP routes, at the host of --router; empty for none"),
		text(&c.SSH, "ssh", "`address` of the SSH server for instances"),
		text(&c.StickyCookies, "sticky-cookies", "`names` of cookies, with commas: a client that has one comes back to the instance which gave it"),
		text(&c.Domain, "domain", "`domain` of app routes: http://APP.domain"),
		text(&c.PublicURL, "public-url", "`URL` of the API that apps receive in VCAP_APPLICATION (default: http:// and --listen)"),
		value(&c.LogReserve, "log-reserve", "free `bytes` on the root below which printing apps are held"),
		value(&c.LogBacklog, "log-backlog", "unread `bytes` of one process above which it is held"),
		value(&c.LogRetention, "log-retention", "`bytes` of log kept per app"),
		duration(&c.LogAge, "log-age", "`time` after which dewd deletes log lines, 0 for never; --log-retention limits them as well"),
		&cli.BoolFlag{Name: "log-journal", EnvVars: env("log-journal"), Destination: &c.LogJournal, Usage: "also copy the log lines of apps to the systemd journal"},
		value(&c.CrashFiles, "crash-files", "`bytes` of files kept of crashed instances, of all apps together; 0 for none"),
		text(&c.LogFormat, "log-format", "`text|json`: form of dewd's own log, on stderr"),
		value(&level{&c.LogLevel}, "log-level", "`debug|info|warn|error`: least level of dewd's own log"),
	}, c.Outbound.flags()...)
}

// policyFlags returns the flags for stopping and restarting instances.
func (c *config) policyFlags() []cli.Flag {
	p := &c.Policy
	return []cli.Flag{
		duration(&p.KillDelay, "kill-delay", "`time` between SIGTERM and SIGKILL"),
		&cli.IntFlag{Name: "immediate-restarts", EnvVars: env("immediate-restarts"), Destination: &p.ImmediateRestarts, Value: p.ImmediateRestarts, Usage: "restarts of a crashed instance without a wait (`count`)"},
		duration(&p.FirstBackoff, "backoff-first", "`time` before the restart after those, doubled each time"),
		duration(&p.MaxBackoff, "backoff-max", "`time` at which doubling ends"),
		&cli.IntFlag{Name: "give-up-after", EnvVars: env("give-up-after"), Destination: &p.MaxCrashes, Value: p.MaxCrashes, Usage: "crashes in a row after which an instance is given up (`count`)"},
		&cli.IntFlag{Name: "health-failures", EnvVars: env("health-failures"), Destination: &p.HealthFailures, Value: p.HealthFailures, Usage: "failed liveness checks in a row after which an instance is unhealthy (`count`); Cloud Foundry: 1"},
		&cli.IntFlag{Name: "crash-records", EnvVars: env("crash-records"), Destination: &p.CrashRecords, Value: p.CrashRecords, Usage: "`count` of newest exit records, with their events, kept per instance index"},
		duration(&p.HealthyReset, "healthy-after", "`time` of health after which the crash count starts over"),
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
		return errors.New("more than there can be")
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
			return fmt.Errorf("cannot make %s absolute: %w", *p, err)
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
		return fmt.Errorf("cannot find the program's own folder: %w (give --init)", err)
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
		return "", fmt.Errorf("cannot resolve %s: %w", path, err)
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
	must(c.Root != "/", "root", "it cannot be / (give it a folder of its own)")
	must(c.Run != "/", "run", "it cannot be / (give it a folder of its own)")
	must(c.Root != c.Run, "run", "%s is --root already (give it a folder of its own)", c.Run)
	must(len(c.Run) <= maxRunPath, "run", "%d characters leave no room for the names of sockets (at most %d)", len(c.Run), maxRunPath)
	must(c.Containerd != "", "containerd", "it is empty (give the path of a socket)")
	must(c.Snapshotter != "", "snapshotter", "it is empty (overlayfs is the usual one)")
	must(c.AppUID > 0 && c.AppUID < math.MaxInt32, "app-uid", "%d is not the id of an ordinary user (1 to %d)", c.AppUID, math.MaxInt32-1)
	if c.Subnet.IsValid() {
		must(c.Subnet.Masked() == c.Subnet, "subnet", "%s has bits set behind its mask (%s would be right)", c.Subnet, c.Subnet.Masked())
		must(c.Subnet.Bits() >= 8 && c.Subnet.Bits() <= 28, "subnet", "%s is too large or too small (/8 to /28)", c.Subnet)
	}
	must(oneOf(c.SeccompArches, "native", "all"), "seccomp-arches", "%q is not one of native, all", c.SeccompArches)
	must(oneOf(c.LogFormat, "text", "json"), "log-format", "%q is not one of text, json", c.LogFormat)
	must(len(c.Domain) <= 253 && domainForm.MatchString(c.Domain), "domain", "%q is not a domain in lower case such as dew.localhost", c.Domain)
	must(validAddress(c.Listen), "listen", "%q is not host:port", c.Listen)
	must(validAddress(c.Router), "router", "%q is not host:port", c.Router)
	must(c.RouterTLS == "" || validAddress(c.RouterTLS), "router-tls", "%q is not host:port", c.RouterTLS)
	must((c.RouterCert == "") == (c.RouterKey == ""), "router-cert", "it needs --router-key, and the other way round")
	must(c.RouterCert == "" || c.RouterTLS != "", "router-cert", "it needs an address (give --router-tls)")
	must(validAddress(c.SSH), "ssh", "%q is not host:port", c.SSH)
	must(c.PublicURL == "" || validPublicURL(c.PublicURL), "public-url", "%q is not http(s)://host[:port] and no more", c.PublicURL)
	must(c.LogReserve > 0, "log-reserve", "it cannot be 0: a full disk would stop apps for good")
	must(c.LogBacklog >= 1<<20, "log-backlog", "%s is less than 1M", &c.LogBacklog)
	must(c.LogRetention >= 1<<20, "log-retention", "%s is less than 1M", &c.LogRetention)
	must(c.LogAge >= 0, "log-age", "%s is less than 0", c.LogAge)
	errs = slices.Concat(errs, validatePolicy(c.Policy), c.Staging.validate(), c.Marketplace.validate(), c.Mailing.validate())
	return errors.Join(errs...)
}

// maxCrashRecords limits the records that a request for crashes or events reads.
const maxCrashRecords = 10_000

func validatePolicy(p supervisor.Policy) []error {
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
			errs = append(errs, fmt.Errorf("--%s: %s is not longer than 0", d.flag, d.d))
		}
	}
	if p.FirstBackoff > p.MaxBackoff {
		errs = append(errs, fmt.Errorf("--backoff-first: %s is longer than --backoff-max, %s", p.FirstBackoff, p.MaxBackoff))
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
		errs = append(errs, fmt.Errorf("--crash-records: %d is not from 1 to %d", p.CrashRecords, maxCrashRecords))
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
			return usage("flags go behind the command: dewd %s --%s …", ctx.Command.Name, l[1].LocalFlagNames()[0])
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
