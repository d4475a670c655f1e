//go:build integration

package examples_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestPages runs the shell blocks of README and docs as a reader would paste them, in
// the order of each page. It uses a dewd with the default ports and run folder. The
// test has its own network and mounts, so it does not affect other daemons on the
// machine.
func TestPages(t *testing.T) {
	checkout := copyCheckout(t)
	ownNamespaces(t)
	c := &cell{dir: t.TempDir(), bin: dewd.bin, run: "/run/dew", defaultPorts: true}
	c.log = filepath.Join(c.dir, "log")
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}()
	for _, page := range pages(t) {
		readPage(t, c, checkout, page)
	}
}

// ownNamespaces moves this goroutine, and the programs it starts, to a network with
// a loopback interface only and to an empty /run.
func ownNamespaces(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		t.Fatalf("cannot create namespaces: %v", err)
	}
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"),
	)
	if err != nil {
		t.Fatalf("cannot mount: %v", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
}

// pages returns README and docs, README first.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../docs/*.md")
	if err != nil || len(all) == 0 {
		t.Fatalf("found no pages: %v", err)
	}
	return append([]string{"../README.md"}, all...)
}

// readPage runs the blocks of one page in its own home folder and in an empty space.
func readPage(t *testing.T, c *cell, checkout, page string) {
	t.Helper()
	marks := []string{"run"}
	path := c.bin + ":" + os.Getenv("PATH")
	if cf := os.Getenv("CF_BIN"); cf != "" {
		marks = append(marks, "cf")
		path = filepath.Dir(cf) + ":" + path
	}
	script, err := exec.Command("../.ci/page", append([]string{page}, marks...)...).Output()
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if !bytes.Contains(script, []byte("at="+page+":")) {
		return // no block runs
	}
	home := t.TempDir()
	file := filepath.Join(home, "page.sh")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		t.Fatal(err)
	}
	sh := exec.Command("bash", file)
	sh.Dir = checkout
	sh.Env = append(goSettings(t), "HOME="+home, "PATH="+path, "LANG=C.UTF-8", "TERM=dumb")
	began := time.Now()
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", page, err, out)
	} else {
		t.Logf("%s: %s\n%s", page, time.Since(began).Round(time.Second/10), out)
	}
	for _, clean := range [][]string{{"delete-space", "-f", "dev", "-o", "local"}, {"create-space", "dev", "-o", "local"}} {
		if r := c.dew("", clean...); r.code != 0 {
			t.Errorf("after %s: dew %s: %s", page, strings.Join(clean, " "), r.err)
		}
	}
}

// goSettings allow go build with another home folder.
func goSettings(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GONOSUMDB", "GOFLAGS"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, name+"="+strings.TrimSpace(string(value)))
	}
	return out
}

// copyCheckout copies the sources, because pages build and write files. It leaves out
// built files, as right after cloning.
func copyCheckout(t *testing.T) string {
	t.Helper()
	files, err := exec.Command("git", "-c", "safe.directory=*", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("cannot list the files of the checkout: %v", err)
	}
	to := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
		if err := copyFile(filepath.Join("..", name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted, not yet committed
			t.Fatal(err)
		}
	}
	return to
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, b, info.Mode().Perm()))
}

// TestPagesAreMarked checks the code blocks of README and docs. A shell block needs a
// mark of .ci/page, and any other block a language. No block is only indented.
func TestPagesAreMarked(t *testing.T) {
	marks := []string{"run", "cf", "slow", "show"}
	others := []string{"yaml", "json", "console", "text"}
	for _, page := range pages(t) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		fenced, list, blank := false, false, true
		number := 0
		for line := range strings.Lines(string(b)) {
			number++
			line = strings.TrimRight(line, "\n")
			at := fmt.Sprintf("%s:%d", page, number)
			info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case fence && fenced:
				fenced = false
			case fence:
				fenced = true
				if mark, shell := strings.CutPrefix(info, "sh "); shell && !slices.Contains(marks, mark) {
					t.Errorf("%s: mark %q of a shell block is none of %v", at, mark, marks)
				} else if !shell && !slices.Contains(others, info) {
					t.Errorf("%s: a block of %q: write sh with a mark, or one of %v", at, info, others)
				}
			case fenced && strings.Contains(line, "&&"):
				t.Errorf("%s: two commands joined by &&: write two lines, so that a failure of the first is seen", at)
			case !fenced && !list && blank && strings.HasPrefix(line, "    "):
				t.Errorf("%s: an indented block: use ``` and a mark", at)
			}
			if line != "" && !strings.HasPrefix(line, " ") {
				list = strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "1. ") || (list && line[0] >= '0' && line[0] <= '9')
			}
			blank = line == ""
		}
	}
}
