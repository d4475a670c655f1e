package sshd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
)

func TestParseLogin(t *testing.T) {
	for _, tt := range []struct {
		user string
		want login // zero: refused
	}{
		{"cf:abc-1/0", login{guid: "abc-1"}},
		{"cf:abc/12", login{guid: "abc", index: 12}},
		{"cf:abc.3/0", login{guid: "abc.3"}},
		{"cf:abc/0/config server", login{guid: "abc", sidecar: "config server"}},
		{"cf:abc/0/a/b", login{guid: "abc", sidecar: "a/b"}},
		{"cf:abc/crashed-0123abcd-0123-0123-0123-0123", login{guid: "abc", crashed: "0123abcd-0123-0123-0123-0123"}},
		{"cf:abc/crashed-0123abcd-0123-0123-0123-0123/x", login{guid: "abc", crashed: "0123abcd-0123-0123-0123-0123", sidecar: "x"}},
		{"cf:abc/crashed-1", login{}},
		{"cf:abc/task", login{guid: "abc", task: true}},
		{"cf:abc/task/x", login{}},
		{"cf:abc/task/", login{}},
		{"cf:abc/crashed-", login{}},
		{"cf:abc/crashed-../../../../../../../../../x", login{}},
		{"", login{}},
		{"root", login{}},
		{"cf:", login{}},
		{"cf:abc", login{}},
		{"cf:abc/", login{}},
		{"cf:/0", login{}},
		{"cf:abc/-1", login{}},
		{"cf:abc/+1", login{}},
		{"cf:abc/01", login{}},
		{"cf:abc/ 1", login{}},
		{"cf:abc/1x", login{}},
		{"cf:abc/99999999999", login{}},
		{"cf:abc/0/", login{}},
		{"cf:../x/0", login{}},
		{"cf:a b/0", login{}},
		{"CF:abc/0", login{}},
		{"cf:" + strings.Repeat("a", 200) + "/0", login{}},
	} {
		got, err := parseLogin(tt.user)
		if got != tt.want || (err == nil) != (tt.want != login{}) {
			t.Errorf("parseLogin(%q) = %+v, %v; want %+v", tt.user, got, err, tt.want)
		}
	}
}

func FuzzParseLogin(f *testing.F) {
	for _, s := range []string{"cf:abc/0", "cf:a/1/side car", "cf:/", "root", "cf:a/00", "cf:a/crashed-0123abcd-0123-0123-0123-0123", "cf:a/task"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, user string) {
		l, err := parseLogin(user)
		if err != nil {
			return
		}
		again := loginPrefix + l.guid + "/" + itoa(l.index)
		if l.crashed != "" {
			again = loginPrefix + l.guid + "/" + crashedPrefix + string(l.crashed)
		}
		if l.task {
			again = loginPrefix + l.guid + "/" + taskLogin
		}
		if l.sidecar != "" {
			again += "/" + l.sidecar
		}
		if again != user || l.index < 0 || l.guid == "" {
			t.Errorf("%q was read as %+v", user, l)
		}
	})
}

// A login without permission is refused, for whatever reason. With a valid code the
// client gets the reason, and the refusal is recorded.
func TestRefusals(t *testing.T) {
	w := newWorld(t, Limits{})
	for _, tt := range []struct {
		name, user string
		code       string
		denied     error
		banner     string
		recorded   bool
	}{
		{name: "no such form", user: "root", code: w.code("a")},
		{name: "wrong code", user: "cf:" + appGUID + "/0", code: "wrong"},
		{name: "empty code", user: "cf:" + appGUID + "/0", code: ""},
		{name: "unknown guid", user: "cf:bbbbbbbb-0000-4000-8000-000000000001/0", code: w.code("c"), banner: "the process does not exist"},
		{name: "no such index", user: "cf:" + appGUID + "/7", code: w.code("d"), banner: "instance 7 is not running", recorded: true},
		{name: "crashed instance", user: "cf:" + appGUID + "/1", code: w.code("e"), banner: "instance 1 is not running", recorded: true},
		{name: "not allowed", user: "cf:" + appGUID + "/0", code: w.code("f"), denied: errors.New("ssh is not enabled"), banner: "ssh is not enabled", recorded: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.deny(tt.denied)
			defer w.deny(nil)
			before := len(w.accesses)
			c, banner, err := w.login(tt.user, tt.code)
			if err == nil {
				_ = c.Close()
				t.Fatal("was let in")
			}
			if tt.banner == "" && banner != "" || !strings.Contains(banner, tt.banner) {
				t.Errorf("the server said %q, want %q", banner, tt.banner)
			}
			if got := w.accesses[before:]; len(got) > 0 != tt.recorded || tt.recorded && (got[0].Err == nil || got[0].Who.Name != "ann") {
				t.Errorf("recorded %+v, want a refusal of ann: %v", got, tt.recorded)
			}
		})
	}
	if len(w.lines) > 0 {
		t.Errorf("the app's log says %q, want nothing of those who were refused", w.lines)
	}
}

// A one-time code is valid once.
func TestCodeIsGoodOnce(t *testing.T) {
	w := newWorld(t, Limits{})
	user := "cf:" + workerGUID + "/0"
	c := w.client(user)
	if _, _, err := w.login(user, "good"); err == nil {
		t.Error("a used code was taken again")
	}
	peer := c.LocalAddr().String()
	if diff := cmp.Diff(w.lines, []string{"SSH/0 Successful remote access by " + peer}); diff != "" {
		t.Errorf("log of the app (-got +want):\n%s", diff)
	}
	if len(w.accesses) != 1 || w.accesses[0].Err != nil || w.accesses[0].Type != "worker" || w.accesses[0].Peer != peer {
		t.Errorf("recorded %+v, want one access to worker", w.accesses)
	}
}

// A client has three attempts per connection.
func TestTriesAreCounted(t *testing.T) {
	w := newWorld(t, Limits{Tries: 3})
	asked := 0
	_, err := ssh.Dial("tcp", w.addr, &ssh.ClientConfig{
		User: "cf:" + appGUID + "/0", HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		Auth: []ssh.AuthMethod{ssh.RetryableAuthMethod(ssh.PasswordCallback(func() (string, error) { asked++; return "wrong", nil }), 100)},
	})
	if err == nil || asked > 3 {
		t.Errorf("asked %d times, %v; want 3 at most", asked, err)
	}
}

func TestHostKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys", "ssh_host_ed25519")
	first, err := hostKey(file)
	if err != nil {
		t.Fatal(err)
	}
	again, err := hostKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if ssh.FingerprintSHA256(first.PublicKey()) != ssh.FingerprintSHA256(again.PublicKey()) {
		t.Error("the host key changed by being read")
	}
	if got := first.PublicKey().Type(); got != ssh.KeyAlgoED25519 {
		t.Errorf("host key is %s, want ed25519", got)
	}
	if got := mode(t, file); got != 0o600 {
		t.Errorf("mode of the host key = %o, want 600", got)
	}
	if got := mode(t, filepath.Dir(file)); got != 0o700 {
		t.Errorf("mode of its folder = %o, want 700", got)
	}
	f := (&Server{signer: first}).Fingerprint()
	if len(f) != 43 || strings.ContainsAny(f, ":=") {
		t.Errorf("fingerprint = %q, want 43 characters without prefix and padding", f)
	}
	if err := os.Truncate(file, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := hostKey(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a broken host key = %v, want an error that names it", err)
	}
}
