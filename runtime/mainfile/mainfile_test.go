package mainfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]Request{
		"an app":      {UID: 2000, GID: 2000, Dir: "/home/vcap/app", Args: []string{"/.dew/init", "launch", "--", "exec ./app\n"}, Env: []string{"A=1", "B=", "C=x\ny"}},
		"no variable": {UID: 1, Dir: "/", Args: []string{"/bin/true"}},
		"empty words": {UID: 4294967295, GID: 1, Dir: "", Args: []string{"/bin/true", "", ""}, Env: []string{"", ""}},
	} {
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b)
		if diff := cmp.Diff(want, got, cmp.Transformer("empty", func(in []string) []string { return append([]string{}, in...) })); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if _, started := ReadStart(b); started {
			t.Errorf("%s: a new file has a report", name)
		}
	}
	for _, bad := range []Request{{Args: []string{"a\x00b"}}, {Args: []string{"a"}, Env: []string{"A=\x00"}}, {Dir: "\x00", Args: []string{"a"}}} {
		if _, err := bad.Encode(); err == nil {
			t.Errorf("%+v was encoded", bad)
		}
	}
}

func TestBadRequest(t *testing.T) {
	t.Parallel()
	head := strings.Repeat("\x00", requestAt)
	for _, bad := range []string{"", head, head + "\x00", head + "1\x001\x00/\x002\x00a\x00", head + "1\x001\x00/\x000\x00", head + "1\x00-1\x00/\x001\x00a\x00", head + "1\x001\x00/\x001\x00a"} {
		if r, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%q was decoded as %+v", strings.TrimLeft(bad, "\x00"), r)
		}
	}
}

// open returns a file with a request, as PID 1 has it.
func open(t *testing.T) (*os.File, func() []byte) {
	t.Helper()
	b, err := Request{Dir: "/", Args: []string{"/bin/true"}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "main")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	f, file := open(t)
	at := time.Unix(1_763_160_000, 123_456_789)
	if err := WriteStart(f, Start{PID: 7}); err != nil {
		t.Fatal(err)
	}
	if s, ok := ReadStart(file()); s != (Start{PID: 7}) || !ok {
		t.Errorf("start = %+v, %v, want 7", s, ok)
	}
	if _, ok := ReadExit(file()); ok {
		t.Error("it exited at its start")
	}
	if err := WriteExit(f, Exit{Code: 137, At: at}); err != nil {
		t.Fatal(err)
	}
	if x, ok := ReadExit(file()); x.Code != 137 || !x.At.Equal(at) || !ok {
		t.Errorf("exit = %+v, %v, want 137 at %v", x, ok, at)
	}
	if _, err := Decode(file()); err != nil {
		t.Errorf("the reports damaged the request: %v", err)
	}
}

// A failure of any length and content is one report.
func TestFailure(t *testing.T) {
	t.Parallel()
	f, file := open(t)
	if err := WriteStart(f, Start{Failure: "cannot\nenter\x00" + strings.Repeat("x", 5000)}); err != nil {
		t.Fatal(err)
	}
	s, ok := ReadStart(file())
	if !ok || !strings.HasPrefix(s.Failure, "cannot enter xxx") || len(s.Failure) > longest {
		t.Errorf("failure = %q, %v", s.Failure, ok)
	}
	if _, ok := ReadExit(file()); ok {
		t.Error("a long report reached into the next one")
	}
}

// An app that is root of its container can empty the file. The report of the exit is
// still at its place.
func TestReportAfterTruncation(t *testing.T) {
	t.Parallel()
	f, file := open(t)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := WriteExit(f, Exit{Code: 3, At: time.Unix(1, 0)}); err != nil {
		t.Fatal(err)
	}
	if x, ok := ReadExit(file()); x.Code != 3 || !ok {
		t.Errorf("exit = %+v, %v, want 3", x, ok)
	}
}

// The file of an app that is root of its container can have any size.
func TestReadReports(t *testing.T) {
	t.Parallel()
	f, _ := open(t)
	if err := errors.Join(WriteStart(f, Start{PID: 7}), f.Truncate(1<<40)); err != nil {
		t.Fatal(err)
	}
	b, err := ReadReports(f.Name())
	if s, ok := ReadStart(b); err != nil || !ok || s.PID != 7 || len(b) != requestAt {
		t.Errorf("%d bytes, %+v, %v, want %d bytes and the start", len(b), s, err, requestAt)
	}
	if err := f.Truncate(3); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadReports(f.Name()); err != nil || len(b) != 3 {
		t.Errorf("%d bytes, %v, want 3", len(b), err)
	}
	if _, err := ReadReports(f.Name() + ".missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// A reader can see any part of a report that is being written.
func TestTornReport(t *testing.T) {
	t.Parallel()
	f, file := open(t)
	if err := WriteExit(f, Exit{Code: 137, At: time.Unix(1_763_160_000, 1)}); err != nil {
		t.Fatal(err)
	}
	whole := file()
	end := exitAt + bytes.IndexByte(whole[exitAt:], '\n')
	for at := exitAt; at <= end; at++ {
		torn := bytes.Clone(whole)
		torn[at] = 0
		if x, ok := ReadExit(torn); ok {
			t.Errorf("without byte %d: %+v", at-exitAt, x)
		}
	}
}

// failing is a disk that is full.
type failing struct{}

func (failing) WriteAt([]byte, int64) (int, error) { return 0, io.ErrShortWrite }

func TestFailedReport(t *testing.T) {
	t.Parallel()
	if WriteStart(failing{}, Start{PID: 2}) == nil || WriteExit(failing{}, Exit{At: time.Unix(1, 0)}) == nil {
		t.Error("a failed write was not reported")
	}
}

func FuzzFile(f *testing.F) {
	b, err := Request{UID: 2000, Dir: "/", Args: []string{"a"}, Env: []string{"A=1"}}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(append([]byte("started 7\n"), b...))
	f.Add(append(make([]byte, exitAt), "exited 255 1\n"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := ReadStart(b); ok && (s.PID > 1) == (s.Failure != "") {
			t.Errorf("start = %+v", s)
		}
		if x, ok := ReadExit(b); ok && (x.Code < 0 || x.Code > 255 || !x.At.After(time.Unix(0, 0))) {
			t.Errorf("exit = %+v", x)
		}
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil || !bytes.Equal(again[requestAt:], b[requestAt:]) && again[requestAt] == b[requestAt] && len(again) == len(b) {
			t.Errorf("%+v: %v, encoded again as %q, want %q", r, err, again[requestAt:], b[requestAt:])
		}
	})
}
