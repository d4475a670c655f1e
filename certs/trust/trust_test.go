package trust

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/certs"
)

// fakeMachine is a machine with one store and browsers, whose programs are imitated.
type fakeMachine struct {
	t        *testing.T
	s        Stores
	calls    []string
	browsers map[string][]string // names by store; nil: certutil is missing
	fail     string              // the program that fails
}

func newMachine(t *testing.T, dirs ...string) *fakeMachine {
	t.Helper()
	root := t.TempDir()
	m := &fakeMachine{t: t, browsers: map[string][]string{}}
	m.s = Stores{Root: root, User: User{Home: filepath.Join(root, "home")}, run: m.run}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *fakeMachine) browser(dir string) {
	m.t.Helper()
	dir = filepath.Join(m.s.User.Home, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cert9.db"), nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *fakeMachine) run(_ context.Context, _ *User, input []byte, name string, args ...string) (string, error) {
	if name == m.fail {
		return "", errors.New(name + " failed")
	}
	if name != "certutil" {
		m.calls = append(m.calls, strings.Join(append([]string{name}, args...), " "))
		return "", nil
	}
	if m.browsers == nil {
		return "", exec.ErrNotFound
	}
	db, named := args[slices.Index(args, "-d")+1], ""
	if i := slices.Index(args, "-n"); i >= 0 {
		named = args[i+1]
	}
	switch args[0] {
	case "-L":
		out := "\nCertificate Nickname                    Trust Attributes\n\n"
		for _, n := range m.browsers[db] {
			out += n + "                      C,,\n"
		}
		return out, nil
	case "-A":
		if !strings.HasPrefix(string(input), "-----BEGIN CERTIFICATE") {
			m.t.Errorf("certutil reads %q", input)
		}
		m.browsers[db] = append(m.browsers[db], named)
	case "-D":
		m.browsers[db] = slices.DeleteFunc(m.browsers[db], func(n string) bool { return n == named })
	}
	return "", nil
}

func newCA(t *testing.T) []byte {
	t.Helper()
	a, err := certs.Open(certs.Config{Dir: t.TempDir(), Domain: "dew.localhost"})
	if err != nil {
		t.Fatal(err)
	}
	return a.PEM()
}

func changes(rs []Result) (out []bool) {
	for _, r := range rs {
		out = append(out, r.Changed)
	}
	return out
}

const debian = "usr/local/share/ca-certificates"

// If the CA of dew was the only one, update-ca-certificates leaves the old bundle.
func TestRemoveTheOnlyCA(t *testing.T) {
	m := newMachine(t, debian, "etc/ssl/certs")
	ca, other := newCA(t), "# another CA\n"
	if _, err := m.s.Add(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(m.s.Root, "etc/ssl/certs/ca-certificates.crt")
	if err := os.WriteFile(bundle, append([]byte(other), ca...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := m.s.Remove(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadFile(bundle); err != nil || string(left) != other {
		t.Errorf("the bundle is %q (%v), want %q", left, err, other)
	}
}

// Adding and removing can be repeated. A second CA stays when the first is removed.
func TestAddAndRemove(t *testing.T) {
	m := newMachine(t, debian)
	m.browser(".pki/nssdb")
	m.browser(".mozilla/firefox/abc.default")
	one, two := newCA(t), newCA(t)
	for _, step := range []struct {
		what  string
		do    func(context.Context, []byte) ([]Result, error)
		ca    []byte
		want  []bool
		files int
	}{
		{"add", m.s.Add, one, []bool{true, true, true}, 1},
		{"add again", m.s.Add, one, []bool{false, false, false}, 1},
		{"add another", m.s.Add, two, []bool{true, true, true}, 2},
		{"remove", m.s.Remove, one, []bool{true, true, true}, 1},
		{"remove again", m.s.Remove, one, []bool{false, false, false}, 1},
		{"add the first again", m.s.Add, one, []bool{true, true, true}, 2},
		{"remove all", m.s.Remove, nil, []bool{true, true, true}, 0},
		{"remove none", m.s.Remove, nil, []bool{false, false, false}, 0},
	} {
		got, err := step.do(t.Context(), step.ca)
		if err != nil || !slices.Equal(changes(got), step.want) {
			t.Errorf("%s: %+v, %v, want %v", step.what, got, err, step.want)
		}
		files, err := filepath.Glob(filepath.Join(m.s.Root, debian, "dew-*.crt"))
		if err != nil || len(files) != step.files {
			t.Errorf("%s: files %v, %v, want %d", step.what, files, err, step.files)
		}
		for db, names := range m.browsers {
			if len(names) != step.files {
				t.Errorf("%s: %s has %v, want %d", step.what, db, names, step.files)
			}
		}
		if has := m.s.Has(one); has != (strings.Contains(step.what, "add") || step.what == "add another") {
			t.Errorf("%s: the store has the first CA: %v", step.what, has)
		}
	}
	if want := "update-ca-certificates --fresh"; !slices.Contains(m.calls, want) || m.calls[0] != "update-ca-certificates" {
		t.Errorf("programs: %v", m.calls)
	}
}

// Files of others in the store stay.
func TestOthersStay(t *testing.T) {
	m := newMachine(t, debian)
	other := filepath.Join(m.s.Root, debian, "company.crt")
	if err := os.WriteFile(other, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.browser(".pki/nssdb")
	m.browsers["sql:"+filepath.Join(m.s.User.Home, ".pki/nssdb")] = []string{"company"}
	if _, err := m.s.Add(t.Context(), newCA(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.s.Remove(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	for _, names := range m.browsers {
		if !slices.Equal(names, []string{"company"}) {
			t.Errorf("browser: %v", names)
		}
	}
}

func TestProblems(t *testing.T) {
	ca := newCA(t)
	leaf := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	for name, tt := range map[string]struct {
		prepare func(m *fakeMachine)
		dirs    []string
		ca      []byte
		want    string
	}{
		"no store":       {nil, nil, ca, "install the package ca-certificates"},
		"Fedora":         {nil, []string{"etc/pki/ca-trust/source/anchors"}, ca, ""},
		"no certificate": {nil, []string{debian}, []byte("x"), "no certificate"},
		"damaged":        {nil, []string{debian}, leaf, "damaged"},
		"update fails":   {func(m *fakeMachine) { m.fail = "update-ca-certificates" }, []string{debian}, ca, "update-ca-certificates failed"},
		"no certutil": {func(m *fakeMachine) {
			m.browser(".mozilla/firefox/x")
			m.browsers = nil
		}, []string{debian}, ca, "libnss3-tools"},
		"no certutil and no browser": {func(m *fakeMachine) { m.browsers = nil }, []string{debian}, ca, ""},
	} {
		m := newMachine(t, tt.dirs...)
		if tt.prepare != nil {
			tt.prepare(m)
		}
		_, err := m.s.Add(t.Context(), tt.ca)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if name == "no certutil" && !m.s.Has(ca) {
			t.Error("without certutil, the machine does not trust the CA either")
		}
	}
}

func TestAsRoot(t *testing.T) {
	if err := asRoot(&os.PathError{Op: "open", Path: "/x", Err: os.ErrPermission}); !errors.Is(err, ErrNotRoot) {
		t.Error(err)
	}
	if err := asRoot(os.ErrNotExist); errors.Is(err, ErrNotRoot) {
		t.Error(err)
	}
}

// FuzzOwnNames: the output of certutil never makes dew remove a CA of others.
func FuzzOwnNames(f *testing.F) {
	f.Add("Certificate Nickname   Trust\n\ndew-0123456789abcdef    C,,\nSome CA  C,,\n")
	f.Fuzz(func(t *testing.T, listed string) {
		for _, name := range ownNames(listed) {
			if !strings.HasPrefix(name, prefix) || strings.ContainsAny(name, " \t\n") {
				t.Errorf("%q", name)
			}
		}
	})
}

// The real certutil adds the CA to the store of a browser and removes it.
func TestCertutil(t *testing.T) {
	if _, err := exec.LookPath("certutil"); err != nil {
		t.Skip("certutil is not installed: apt install libnss3-tools")
	}
	m := newMachine(t, debian)
	m.s.run = func(ctx context.Context, as *User, input []byte, name string, args ...string) (string, error) {
		if name != "certutil" {
			return "", nil // it would change this machine
		}
		return runProgram(ctx, as, input, name, args...)
	}
	db := filepath.Join(m.s.User.Home, ".pki/nssdb")
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("certutil", "-N", "--empty-password", "-d", "sql:"+db).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stored := func() int {
		out, err := exec.Command("certutil", "-L", "-d", "sql:"+db).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return len(ownNames(string(out)))
	}
	ca := newCA(t)
	for range 2 {
		if _, err := m.s.Add(t.Context(), ca); err != nil {
			t.Fatal(err)
		}
		if n := stored(); n != 1 {
			t.Errorf("%d CAs of dew are in the store, want 1", n)
		}
	}
	if _, err := m.s.Remove(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	if n := stored(); n != 0 {
		t.Errorf("%d CAs of dew are left in the store", n)
	}
}
