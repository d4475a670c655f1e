package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
)

// parse parses args as flags of the daemon and returns the configuration.
func parse(t *testing.T, args ...string) (config, error) {
	t.Helper()
	c := defaultConfig()
	var got config
	a := &cli.App{
		Name: "dewd", Flags: c.allFlags(), Writer: io.Discard, ErrWriter: io.Discard,
		OnUsageError: usageError, ExitErrHandler: func(*cli.Context, error) {},
		Action: command(&c, func(_ *cli.Context, c config) error { got = c; return nil }),
	}
	err := a.Run(append([]string{"dewd"}, args...))
	return got, err
}

func TestDefaultsAreValid(t *testing.T) {
	c, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if c.Root != "/var/lib/dew" || c.Run != "/run/dew" || c.AppUID != 2000 || c.LogReserve != 512<<20 {
		t.Errorf("config = %+v, want the documented defaults", c)
	}
	if filepath.Base(c.Init) != "dew-init" || !filepath.IsAbs(c.Init) {
		t.Errorf("init = %q, want dew-init beside the program", c.Init)
	}
	if c.Policy.KillDelay != 10*time.Second || c.Policy.MaxCrashes != 200 {
		t.Errorf("policy = %+v, want its defaults", c.Policy)
	}
}

func TestFlagsAndEnvironment(t *testing.T) {
	t.Setenv("DEW_LOG_BACKLOG", "8M")
	t.Setenv("DEW_KILL_DELAY", "3s")
	t.Setenv("DEW_ROOT", "/somewhere")
	c, err := parse(t, "--root", "/srv/dew/", "--subnet", "10.9.0.0/20", "--log-level", "debug", "--log-retention", "1g", "--give-up-after", "5")
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{
		"the flag wins over the environment": c.Root == "/srv/dew",
		"size from the environment":          c.LogBacklog == 8<<20,
		"duration from the environment":      c.Policy.KillDelay == 3*time.Second,
		"subnet":                             c.Subnet.String() == "10.9.0.0/20",
		"level":                              c.LogLevel == slog.LevelDebug,
		"size":                               c.LogRetention == 1<<30,
		"count":                              c.Policy.MaxCrashes == 5,
	} {
		if !ok {
			t.Errorf("%s: config = %+v", name, c)
		}
	}
}

// Every wrong value is a usage error that names its flag.
func TestWrongValues(t *testing.T) {
	for _, tt := range []struct{ flag, value, want string }{
		{"root", "/", "--root: the folder cannot be /"},
		{"run", "/", "--run: the folder cannot be /"},
		{"run", "/var/lib/dew", "--run: /var/lib/dew is also the folder of --root"},
		{"run", "/run/" + strings.Repeat("x", 60), "--run: the path has 65 characters"},
		{"containerd", "", "--containerd: the value is empty"},
		{"snapshotter", "", "--snapshotter: the value is empty"},
		{"app-uid", "0", "--app-uid: 0 is not"},
		{"app-uid", "-4", "--app-uid: -4 is not"},
		{"app-uid", "me", "invalid value"},
		{"subnet", "10.1.0.0", "not an IPv4 network"},
		{"subnet", "fd00::/64", "not an IPv4 network"},
		{"subnet", "10.1.0.1/24", "use 10.1.0.0/24"},
		{"subnet", "10.0.0.0/30", "/8 to /28"},
		{"domain", "Dew.localhost", "--domain"},
		{"domain", "dew..localhost", "--domain"},
		{"domain", "-dew", "--domain"},
		{"public-url", "127.0.0.1:8484", "--public-url"},
		{"public-url", "http://127.0.0.1:8484/api", "--public-url"},
		{"public-url", "http://:80", "--public-url"},
		{"public-url", "ftp://host", "--public-url"},
		{"router-tls", "8443", "--router-tls"},
		{"router-cert", "/a.pem", "--router-cert and --router-key must be set together"},
		{"router-key", "/a.key", "--router-cert and --router-key must be set together"},
		{"log-reserve", "0", "--log-reserve"},
		{"log-backlog", "512K", "--log-backlog: 512K is less than 1M"},
		{"log-retention", "-1", "not a size"},
		{"log-retention", "9999999T", "larger than the maximum of 8388607T"},
		{"seccomp-arches", "both", "--seccomp-arches"},
		{"log-format", "xml", "--log-format"},
		{"log-level", "info+1", "not one of debug"},
		{"kill-delay", "0s", "--kill-delay"},
		{"kill-delay", "10", "invalid value"},
		{"backoff-first", "1h", "--backoff-first: 1h0m0s is longer than --backoff-max"},
		{"backoff-max", "-1s", "--backoff-max"},
		{"healthy-after", "0", "--healthy-after"},
		{"immediate-restarts", "0", "--immediate-restarts"},
		{"give-up-after", "0", "--give-up-after"},
		{"health-failures", "0", "--health-failures: 0 is less than 1"},
	} {
		t.Run(tt.flag+"="+tt.value, func(t *testing.T) {
			_, err := parse(t, "--"+tt.flag+"="+tt.value)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
			if got := statusOf(err); got != statusUsage {
				t.Errorf("status = %d, want %d", got, statusUsage)
			}
		})
	}
}

func TestAllWrongValuesAreReported(t *testing.T) {
	_, err := parse(t, "--app-uid", "0", "--log-format", "xml")
	if err == nil || !strings.Contains(oneLine(err), "--app-uid: ") || !strings.Contains(oneLine(err), "; --log-format: ") {
		t.Errorf("error = %v, want both flags on one line", err)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"version"}, 0, ""},
		{[]string{"--help"}, 0, ""},
		{[]string{"doctor", "--help"}, 0, ""},
		{[]string{"fly"}, statusUsage, `unknown command or argument "fly"`},
		{[]string{"doctor", "me"}, statusUsage, `unknown command or argument "me"`},
		{[]string{"--root", "/x", "doctor"}, statusUsage, "flags go after the command: dewd doctor --root"},
		{[]string{"--nope"}, statusUsage, "not defined: -nope"},
		{[]string{"teardown", "--nope"}, statusUsage, "not defined: -nope"},
		{[]string{"teardown", "--kill-delay", "1s"}, statusUsage, "not defined: -kill-delay"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			a := newApp(defaultConfig())
			a.Writer, a.ErrWriter = io.Discard, io.Discard
			err := a.Run(append([]string{"dewd"}, tt.args...))
			if got := statusOf(err); got != tt.status {
				t.Errorf("status = %d (%v), want %d", got, err, tt.status)
			}
			if tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("error = %v, want one with %q", err, tt.says)
			}
		})
	}
}

// --help lists every exit code of dewd.
func TestHelpListsExitStatuses(t *testing.T) {
	var out bytes.Buffer
	a := newApp(defaultConfig())
	a.Writer = &out
	if err := a.Run([]string{"dewd", "--help"}); err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{0, statusFailed, statusUsage, statusInfrastructure} {
		if !strings.Contains(out.String(), fmt.Sprintf("      %d  ", status)) {
			t.Errorf("help does not tell of exit status %d", status)
		}
	}
}

// The reference page has a row for every flag, with its default.
func TestReferenceListsFlags(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "dewd.md"))
	if err != nil {
		t.Fatal(err)
	}
	c := defaultConfig()
	for _, f := range c.allFlags() {
		row := "| `--" + f.Names()[0] + "` | "
		// 16m0s is written as 16m there.
		if d := strings.TrimSuffix(f.(cli.DocGenerationFlag).GetDefaultText(), "m0s"); d != "" && d != "false" {
			row += "`" + strings.Trim(d, `"`)
		}
		if !strings.Contains(string(b), row) {
			t.Errorf("docs/dewd.md has no row that begins with %q", row)
		}
	}
}

func TestStatusOf(t *testing.T) {
	plain := errors.New("x")
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{plain, statusFailed},
		{infrastructure(plain), statusInfrastructure},
		{fmt.Errorf("cannot: %w", infrastructure(plain)), statusInfrastructure},
		{errors.Join(plain, infrastructure(plain)), statusInfrastructure},
		{infrastructure(nil), 0},
	} {
		if got := statusOf(tt.err); got != tt.want {
			t.Errorf("statusOf(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestSize(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want size
	}{
		{"0", 0},
		{"1", 1},
		{"4k", 4 << 10},
		{"64M", 64 << 20},
		{"64MB", 64 << 20},
		{"64MiB", 64 << 20},
		{" 2G ", 2 << 30},
		{"1T", 1 << 40},
		{"8388607T", 8388607 << 40},
	} {
		var got size
		if err := got.UnmarshalText([]byte(tt.in)); err != nil || got != tt.want {
			t.Errorf("size %q = %d, %v, want %d", tt.in, got, err, tt.want)
		}
	}
}

// A size is never negative, and its text form means the same size.
func FuzzSize(f *testing.F) {
	for _, s := range []string{"", "0", "64M", "1.5G", "-1", "8388608T", "999999999999999999", "9MiB", "iB", "1 G"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var n, again size
		if n.UnmarshalText([]byte(s)) != nil {
			return
		}
		if n < 0 {
			t.Fatalf("size %q = %d", s, n)
		}
		if err := again.UnmarshalText([]byte(n.String())); err != nil || again != n {
			t.Fatalf("size %q = %d, but its text %q = %d, %v", s, n, n.String(), again, err)
		}
	})
}

// A subnet is IPv4 or none, and its text form means the same.
func FuzzSubnet(f *testing.F) {
	for _, s := range []string{"", "10.0.0.0/8", "10.0.0.1/33", "::/0", "x", "1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var n, again netip.Prefix
		if (&subnet{&n}).UnmarshalText([]byte(s)) != nil {
			return
		}
		if n.IsValid() && !n.Addr().Is4() {
			t.Fatalf("subnet %q = %v", s, n)
		}
		if err := (&subnet{&again}).UnmarshalText([]byte((&subnet{&n}).String())); err != nil || again != n {
			t.Fatalf("subnet %q = %v, but its text gives %v, %v", s, n, again, err)
		}
	})
}
