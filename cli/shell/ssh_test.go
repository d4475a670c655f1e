package shell

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

func TestParseForward(t *testing.T) {
	for _, tt := range []struct {
		text string
		want forward // zero: refused
	}{
		{"8080:localhost:80", forward{"localhost:8080", "tcp", "localhost:80"}},
		{"0:db.internal:5432", forward{"localhost:0", "tcp", "db.internal:5432"}},
		{"127.0.0.1:8080:localhost:80", forward{"127.0.0.1:8080", "tcp", "localhost:80"}},
		{":8080:localhost:80", forward{":8080", "tcp", "localhost:80"}},
		{"[::1]:8080:[fe80::1]:80", forward{"[::1]:8080", "tcp", "[fe80::1]:80"}},
		{"8080:/tmp/app.sock", forward{"localhost:8080", "unix", "/tmp/app.sock"}},
		{"127.0.0.1:8080:/tmp/a:b", forward{"127.0.0.1:8080", "unix", "/tmp/a:b"}},
		{"", forward{}},
		{"8080", forward{}},
		{"8080:80", forward{}},
		{"8080:localhost", forward{}},
		{"8080:localhost:0", forward{}},
		{"8080:localhost:70000", forward{}},
		{"x:localhost:80", forward{}},
		{"8080::80", forward{}},
		{"8080:/", forward{}},
		{"/tmp/x", forward{}},
		{"a:b:c:d:e", forward{}},
		{"[::1:8080:localhost:80", forward{}},
		{"[::1]x:8080:localhost:80", forward{}},
	} {
		got, err := parseForward(tt.text)
		if err != nil {
			got = forward{}
		}
		if got != tt.want {
			t.Errorf("parseForward(%q) = %+v, %v; want %+v", tt.text, got, err, tt.want)
		}
	}
}

func FuzzParseForward(f *testing.F) {
	for _, s := range []string{"8080:localhost:80", "[::1]:1:[::1]:2", "1:/x", "::::", "[", "1:[]:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseForward(text)
		if err == nil && (got.listen == "" || got.target == "" || got.network != "tcp" && got.network != "unix") {
			t.Errorf("%q was read as %+v", text, got)
		}
	})
}

func TestParseCopy(t *testing.T) {
	for _, tt := range []struct {
		source, target string
		want           copyOptions // zero: refused
	}{
		{"shop:logs/a.log", ".", copyOptions{Location: Location{App: "shop"}, remote: "logs/a.log", local: "."}},
		{"shop:", "x", copyOptions{Location: Location{App: "shop"}, remote: ".", local: "x"}},
		{"./a:b", "shop:/tmp", copyOptions{Location: Location{App: "shop"}, remote: "/tmp", local: "./a:b", upload: true}},
		{"a", "shop:x:y", copyOptions{Location: Location{App: "shop"}, remote: "x:y", local: "a", upload: true}},
		{"a", "b", copyOptions{}},
		{"a:x", "b:y", copyOptions{}},
		{":x", "b", copyOptions{}},
	} {
		got, err := parseCopy(tt.source, tt.target)
		if got != tt.want || (err == nil) != (tt.want != copyOptions{}) {
			t.Errorf("parseCopy(%q, %q) = %+v, %v; want %+v", tt.source, tt.target, got, err, tt.want)
		}
	}
}

func TestTerminalRequest(t *testing.T) {
	for _, tt := range []struct {
		mode          terminalMode
		here, command bool
		want          bool
	}{
		{terminalIfInteractive, true, false, true},
		{terminalIfInteractive, true, true, false},
		{terminalIfInteractive, false, false, false},
		{terminalIfHere, true, true, true},
		{terminalIfHere, false, true, false},
		{forceTerminal, false, true, true},
		{NoTerminal, true, false, false},
	} {
		if got := tt.mode.grants(tt.here, tt.command); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// dew exits with the status of the remote command, without a message.
func TestEnded(t *testing.T) {
	if err := exitError(t.Context(), nil); err != nil {
		t.Errorf("a good end = %v", err)
	}
	err := exitError(t.Context(), &ssh.ExitError{})
	if f := (*console.Failure)(nil); !errors.As(err, &f) || err.Error() != "" {
		t.Errorf("an end with a status = %v, want no words", err)
	}
	if err := exitError(t.Context(), &ssh.ExitMissingError{}); command.StatusOf(err) != 255 || err.Error() != "the connection to dewd broke before the command ended" {
		t.Errorf("no status = %v with %d, want 255", err, command.StatusOf(err))
	}
	if err := exitError(t.Context(), errors.New("reset")); command.StatusOf(err) != 255 || !strings.Contains(err.Error(), "reset") {
		t.Errorf("a broken connection = %v with %d, want 255", err, command.StatusOf(err))
	}
}

// The instance names a path, and the name is not trusted.
func TestNameIn(t *testing.T) {
	for real, want := range map[string]string{
		"/home/vcap/app": "app", "/": ".", "//": ".", "app": "app", "/home/vcap/..data": "..data",
		"/home/..": ".", "..": "", "/a/../..b": "..b", ".": "", "": "", "/a/./.": "", "/a/\x00": "",
	} {
		got, err := nameIn(real)
		if want == "" && err == nil || want != "" && got != want {
			t.Errorf("nameIn(%q) = %q, %v; want %q", real, got, err, want)
		}
	}
}
