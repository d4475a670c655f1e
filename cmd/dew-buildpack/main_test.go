package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// appFolder returns a folder with these files.
func appFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ran is the result of the program.
type ran struct {
	code        int
	out, errs   string
	reason      string
	reasonIsSet bool
}

// call runs the program. REASON in its arguments is a file.
func call(t *testing.T, args ...string) ran {
	t.Helper()
	file := filepath.Join(t.TempDir(), "reason")
	for i := range args {
		if args[i] == "REASON" {
			args[i] = file
		}
	}
	var out, errs strings.Builder
	r := ran{code: run(args, &out, &errs), out: out.String(), errs: errs.String()}
	if b, err := os.ReadFile(file); err == nil {
		r.reason, r.reasonIsSet = string(b), true
	}
	return r
}

func TestVersion(t *testing.T) {
	t.Setenv("CF_STACK", "small")
	t.Setenv("GOVERSION", "")
	dir := appFolder(t, map[string]string{
		"package.json": `{"engines": {"node": ">=20"}}`, ".nvmrc": "18\n", ".node-version": "newest\n", "runtime.txt": "python-3.11.x\n",
	})
	r := call(t, "version", "node", "v18.20.4", dir, "REASON")
	const reason = "package.json line 1 (engines.node) asks for Node.js >=20, but stack small has 18.20.4. Use a stack that has it, change the version to 18.20.x, or push an image\n"
	if r.code != exitFailed || r.reason != reason {
		t.Errorf("status %d, reason %q, want %q", r.code, r.reason, reason)
	}
	const out = "       Node.js 18.20.4 satisfies 18 (.nvmrc line 1)\n" +
		"       WARNING: Cannot compare the Node.js version in .node-version line 1: \"newest\" is not a version\n"
	if r.out != out || r.errs != "" {
		t.Errorf("printed %q and %q, want %q", r.out, r.errs, out)
	}
	if r := call(t, "version", "python", "3.11.2", dir, "REASON"); r.code != 0 || r.reasonIsSet {
		t.Errorf("a satisfied hint: %+v", r)
	}
	if r := call(t, "version", "python", "3.12.1", dir, filepath.Join(dir, "no", "reason")); r.code != exitFailed || !strings.Contains(r.errs, "runtime.txt line 1") {
		t.Errorf("a reason that cannot be written: %+v", r)
	}
	for _, args := range [][]string{nil, {"version"}, {"compare", "a", "b", "c", "d"}, {"version", "cobol", "1", dir, "REASON"}} {
		if r := call(t, args...); r.code != exitUsage || r.errs == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestDependencies(t *testing.T) {
	dir := appFolder(t, map[string]string{"requirements.txt": "x==1\n", "stack": "one"})
	stack := filepath.Join(dir, "stack")
	first := call(t, "dependencies", "python", "3.11.2", dir, stack)
	if first.code != 0 || len(strings.TrimSpace(first.out)) != 64 || first.errs != "" {
		t.Fatalf("a pinned package: %+v", first)
	}
	if again := call(t, "dependencies", "python", "3.11.2", dir, stack); again != first {
		t.Errorf("the same again: %+v, want %+v", again, first)
	}
	if err := os.WriteFile(stack, []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	if other := call(t, "dependencies", "python", "3.11.2", dir, stack); other.code != 0 || other.out == first.out {
		t.Errorf("another stack: %+v, want another key", other)
	}
	loose := appFolder(t, map[string]string{"requirements.txt": "x\n"})
	if r := call(t, "dependencies", "python", "3.11.2", loose, stack); r.code != 0 || r.out != "" || r.errs != "" {
		t.Errorf("a package without a version: %+v, want no key", r)
	}
	for _, args := range [][]string{{"cobol", "1", dir, stack}, {"python", "1", dir, filepath.Join(dir, "missing")}} {
		if r := call(t, append([]string{"dependencies"}, args...)...); r.code != exitFailed || r.out != "" || r.errs == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
