//go:build integration

package examples_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newLimitedCell starts a separate daemon with strict limits for builds.
func newLimitedCell(t *testing.T, flags ...string) *cell {
	t.Helper()
	dir, err := os.MkdirTemp("", "dew")
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{dir: dir, bin: dewd.bin, run: filepath.Join(dir, "run"), log: filepath.Join(dir, "log"), extra: flags}
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			b, _ := os.ReadFile(c.log) // as much of it as there is
			t.Errorf("%v\n%s", err, b)
		}
		_ = os.RemoveAll(dir)
	})
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cell) must(t *testing.T, args ...string) result {
	t.Helper()
	r := c.dew("", args...)
	if r.code != 0 {
		t.Fatalf("dew %s: status %d\n%s%s", strings.Join(args, " "), r.code, r.err, r.out)
	}
	return r
}

// containers lists the containers of instances and builds.
func (c *cell) containers(t *testing.T) (found []string) {
	t.Helper()
	sum := sha256.Sum256([]byte(filepath.Join(c.dir, "root")))
	tag := hex.EncodeToString(sum[:4])
	for _, pattern := range []string{filepath.Join(c.run, "instances", "*"), filepath.Join(c.run, "netns", "*"), "/sys/fs/cgroup/memory/dew-" + tag + "/*-*", "/sys/fs/cgroup/dew-" + tag + "/*-*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	return found
}

// A push reports that its app was deleted during the staging, and nothing of the build
// is left. dew shutdown --apps stops a staging as well: dewd exits with status 0 and
// logs no error.
func TestDeletedWhileStaging(t *testing.T) {
	c := newLimitedCell(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), "x", 0o644)
	pack := buildpack(t, map[string]string{"compile": "echo compiling; sleep 1000", "release": "echo 'default_process_types: {web: sleep 1000}'"})
	push := func(name string) <-chan result {
		ended := make(chan result, 1)
		go func() {
			ended <- c.dew("", "push", name, "-p", dir, "-b", pack, "-u", "process", "--no-route", "-m", "32M")
		}()
		eventually(t, "the staging of "+name, func() error {
			if r := c.dew("", "logs", name, "--recent"); !strings.Contains(r.out, "compiling") {
				return fmt.Errorf("status %d: %s%s", r.code, r.out, r.err)
			}
			return nil
		})
		return ended
	}
	ended := push("gone")
	c.must(t, "delete", "-f", "gone")
	if r := <-ended; r.code != 1 || !strings.Contains(r.err, "app gone was deleted during staging") {
		t.Errorf("status %d, want 1:\n%s", r.code, r.err)
	}
	eventually(t, "the end of the build", func() error {
		logs, err := filepath.Glob(filepath.Join(c.dir, "root", "logs", "*-*"))
		if left := append(c.containers(t), logs...); len(left) != 0 {
			return fmt.Errorf("left behind: %v", left)
		}
		return err
	})
	ended = push("staging")
	if err := c.end(); err != nil {
		t.Error(err)
	}
	c.cmd = nil // it has exited
	<-ended
	b, err := os.ReadFile(c.log)
	if err != nil || !strings.Contains(string(b), "exiting; all apps are stopped") || strings.Contains(string(b), "apps keep running") {
		t.Errorf("%v, it says otherwise what it did:\n%s", err, b)
	}
}

// hostileCase is the script of a hostile buildpack, and the expected error of its build.
type hostileCase struct{ compile, want string }

// Hostile buildpacks fail with a reason within their limits. Other apps keep running,
// and nothing is left of the build. Only builds that never finish reach the time limit,
// because the duration of the others depends on the machine.
func TestHostileBuildpacks(t *testing.T) {
	const late = `cannot stage \S+: staging took longer than 8s`
	t.Run("endless", func(t *testing.T) {
		hostileBuildpacks(t, "8s", map[string]hostileCase{
			"forks":   {`f() { f | f & }; f; sleep 1000`, late + `|cannot stage`},
			"ignores": {`trap '' TERM INT HUP; while :; do sleep 1; done`, late},
			"prints":  {`while :; do echo "printing without end"; done`, late},
			"inodes":  {`mkdir "$1/d" && cd "$1/d" && seq 1 400000 | xargs touch; sleep 1000`, `(disk quota exceeded: the limit for staging is 300000 files|staging took longer)`},
		})
	})
	t.Run("greedy", func(t *testing.T) {
		hostileBuildpacks(t, "3m", map[string]hostileCase{
			"eats":    {`x=x; while :; do x=$x$x; done`, `cannot stage \S+: staging ran out of memory: the limit is 128M`},
			"fills":   {`dd if=/dev/zero of="$1/big" bs=1M count=700 2>/dev/null; sleep 1000`, `cannot stage \S+: disk quota exceeded: the limit for staging is 256M`},
			"holes":   {`truncate -s 100G "$1/hole"`, `cannot stage \S+: its files are larger than 256M together`},
			"escapes": {`rm -rf "$1" && ln -s /etc "$1"`, `cannot stage \S+: /tmp/app is no folder any more`},
			"remains": {`(trap '' HUP; sleep 1000) & echo started; exit 3`, `cannot stage \S+: buildpack .*: bin/compile exited with status 3`},
			"devices": {`mkfifo "$1/fifo" && mknod "$1/dev" c 1 3`, `cannot stage \S+: mknod: .*Operation not permitted`},
			"talks":   {`head -c 3000000 /dev/zero | tr '\0' x >/tmp/result/release.yml; exit 4`, `cannot stage \S+: its files are larger than 1M together`},
		})
	})
}

// hostileBuildpacks tests them on a daemon with this time limit for builds.
func hostileBuildpacks(t *testing.T, limit string, all map[string]hostileCase) {
	t.Helper()
	c := newLimitedCell(t, "--staging-timeout", limit, "--staging-memory", "128MiB", "--staging-disk", "256MiB")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), "x", 0o644)
	good := []string{"push", "good", "-p", dir, "-b", "binary_buildpack", "-c", "sleep 1000", "-u", "process", "-m", "32M", "--no-route"}
	c.must(t, good...)
	alone := len(c.containers(t))
	instance := c.must(t, "curl", "/v3/apps/"+strings.TrimSpace(c.must(t, "app", "good", "--guid").out)+"/processes/web/stats").out
	id := regexp.MustCompile(`"instance_guid":\s*"([^"]*)"`).FindString(instance)
	for name, h := range all {
		t.Run(name, func(t *testing.T) {
			pack := buildpack(t, map[string]string{"compile": h.compile, "release": "echo 'default_process_types: {web: sleep 1000}'"})
			began := time.Now()
			r := c.dew("", "push", name, "-p", dir, "-b", pack, "-u", "process", "--no-route", "-m", "32M")
			if r.code != 3 || !regexp.MustCompile(h.want).MatchString(r.err) {
				t.Errorf("status %d, want 3 and %s:\n%s", r.code, h.want, tail(r.err))
			}
			if took := time.Since(began); took > patience {
				t.Errorf("it took %s", took)
			}
			if left := c.containers(t); len(left) != alone {
				t.Errorf("left behind: %v", left)
			}
			c.must(t, "delete", "-f", name)
		})
	}
	now := c.must(t, "curl", "/v3/apps/"+strings.TrimSpace(c.must(t, "app", "good", "--guid").out)+"/processes/web/stats").out
	if id == "" || !strings.Contains(now, id) {
		t.Errorf("the other app was replaced:\n%s", now)
	}
	c.must(t, good...) // and the daemon still works
	c.must(t, "delete", "-f", "good")
}

func tail(s string) string { return s[max(0, len(s)-1000):] }

// Programs from a build run without setuid permissions.
func TestSetuidIsLost(t *testing.T) {
	pack := buildpack(t, map[string]string{
		"compile": `cp /bin/sleep "$1/sleep" && chmod 6755 "$1/sleep"`, "release": "echo 'default_process_types: {web: ls -l sleep; ./sleep 1000}'",
	})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), "x", 0o644)
	deleteLater(t, "setuid")
	dew(t, "", "push", "setuid", "-p", dir, "-b", pack, "-u", "process", "--no-route", "-m", "32M")
	eventually(t, "the mode", func() error {
		for _, l := range logsOf(t, "setuid") {
			if strings.HasPrefix(l.Text, "-rwxr-xr-x") && l.Source == "APP/PROC/WEB" {
				return nil
			}
		}
		return fmt.Errorf("no such line")
	})
}

// Hostile packages are refused before anything is staged.
func TestHostilePackages(t *testing.T) {
	const name = "hostile"
	dew(t, "", "create-app", name)
	deleteLater(t, name)
	app := guidOf(t, name)
	for what, c := range map[string]struct {
		fill func(z *zip.Writer) error
		want string
	}{
		"zip slip":      {func(z *zip.Writer) error { _, err := z.Create("../../etc/passwd"); return err }, `must not contain \.\.|outside|\.\.`},
		"device":        {entryMode("null", fs.ModeDevice|fs.ModeCharDevice|0o666), `neither a file|device`},
		"setuid folder": {entryMode("d/../../x", 0o4755), `\.\.`},
		"many files": {func(z *zip.Writer) error {
			for i := range 100_001 {
				if _, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprint(i)}); err != nil {
					return err
				}
			}
			return nil
		}, `more than|at most|100`},
		"bomb": {bomb, `1G|larger|at most`},
	} {
		t.Run(what, func(t *testing.T) {
			p := socketRequest(t, http.MethodPost, "/v3/packages", "application/json", fmt.Sprintf(`{"type":"bits","relationships":{"app":{"data":{"guid":%q}}}}`, app))
			guid := regexp.MustCompile(`"guid":"([0-9a-f-]{36})"`).FindStringSubmatch(p.body)
			if guid == nil {
				t.Fatalf("no package: %s", p.body)
			}
			var bits, form bytes.Buffer
			z := zip.NewWriter(&bits)
			if err := c.fill(z); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			m := multipart.NewWriter(&form)
			part, err := m.CreateFormFile("bits", "x.zip")
			if err != nil {
				t.Fatal(err)
			}
			part.Write(bits.Bytes()) //nolint:errcheck // into memory
			m.Close()
			p = socketRequest(t, http.MethodPost, "/v3/packages/"+guid[1]+"/upload", m.FormDataContentType(), form.String())
			if p.status != http.StatusUnprocessableEntity || !regexp.MustCompile(c.want).MatchString(p.body) {
				t.Errorf("answer %d %s, want 422 and %s", p.status, p.body, c.want)
			}
		})
	}
}

// bomb adds a file of zeros that is larger than the maximum size of a package. The
// compressed form of one part is repeated, so that the test need not compress all of
// it.
func bomb(z *zip.Writer) error {
	const times = 1025
	zeros := make([]byte, 1<<20)
	var one bytes.Buffer
	f, err := flate.NewWriter(&one, flate.BestCompression)
	if err != nil {
		return err
	}
	if _, err := f.Write(zeros); err != nil {
		return err
	}
	if err := f.Flush(); err != nil {
		return err
	}
	all := bytes.Repeat(one.Bytes(), times)
	one.Reset()
	f.Reset(&one)
	if err := f.Close(); err != nil {
		return err
	}
	all = append(all, one.Bytes()...)
	sum := uint32(0)
	for range times {
		sum = crc32.Update(sum, crc32.IEEETable, zeros)
	}
	w, err := z.CreateRaw(&zip.FileHeader{
		Name: "zeros", Method: zip.Deflate, CRC32: sum, CompressedSize64: uint64(len(all)), UncompressedSize64: times << 20,
	})
	if err != nil {
		return err
	}
	_, err = w.Write(all)
	return err
}

func entryMode(name string, mode fs.FileMode) func(z *zip.Writer) error {
	return func(z *zip.Writer) error {
		h := &zip.FileHeader{Name: name}
		h.SetMode(mode)
		_, err := z.CreateHeader(h)
		return err
	}
}

// serves starts a server on the machine's address that the containers of a daemon can
// reach.
func (c *cell) serves(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	sum := sha256.Sum256([]byte(filepath.Join(c.dir, "root")))
	bridge, err := net.InterfaceByName("dewbr" + hex.EncodeToString(sum[:4]))
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := bridge.Addrs()
	if err != nil || len(addrs) == 0 {
		t.Fatalf("no address: %v", err)
	}
	l, err := net.Listen("tcp4", net.JoinHostPort(addrs[0].(*net.IPNet).IP.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: h}
	go server.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// A buildpack is fetched with git from a URL that its user chooses.
func TestGitBuildpack(t *testing.T) {
	c := newLimitedCell(t, "--allow-host")
	pack := buildpack(t, map[string]string{"compile": "echo fetched by git", "release": "echo 'default_process_types: {web: sleep 1000}'"})
	home := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		command(t, pack, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"}, args...)...)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "x")
	git("tag", "v1")
	git("clone", "-q", "--bare", ".", filepath.Join(home, "pack.git"))
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	address := c.serves(t, &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + home, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})

	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), "x", 0o644)
	url := "http://me:secret@" + address + "/pack.git"
	push := func(pack string) result {
		return c.dew("", "push", "git", "-p", dir, "-b", pack, "-u", "process", "--no-route", "-m", "32M")
	}
	for _, url := range []string{url, url + "#v1"} {
		if r := push(url); r.code != 0 || !strings.Contains(r.err, "fetched by git") || strings.Contains(r.err, "secret") {
			t.Errorf("%s: status %d\n%s", url, r.code, tail(r.err))
		}
	}
	r := push(strings.Replace(url, "pack.git", "nothing.git", 1))
	if r.code != 3 || !strings.Contains(r.err, "git clone exited with status") || strings.Contains(r.err, "secret") {
		t.Errorf("nothing there: status %d\n%s", r.code, tail(r.err))
	}
	c.must(t, "delete", "-f", "git")
}

// A buildpack is fetched as a zip, for users with permission.
func TestZipBuildpack(t *testing.T) {
	c := newLimitedCell(t, "--allow-host")
	var good bytes.Buffer
	z := zip.NewWriter(&good)
	for name, text := range map[string]string{
		"pack-1.0/bin/compile": "#!/bin/sh\necho fetched as a zip\n", "pack-1.0/bin/release": "#!/bin/sh\necho 'default_process_types: {web: sleep 1000}'\n",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text) //nolint:errcheck // into memory
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	address := c.serves(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case user != "me" || password != "secret" || r.URL.RawQuery != "sig=hush":
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/pack.zip":
			w.Write(good.Bytes()) //nolint:errcheck // to the test
		case r.URL.Path == "/bad.zip":
			io.WriteString(w, "no zip") //nolint:errcheck // to the test
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), "x", 0o644)
	for _, p := range []struct {
		path string
		code int
		want string
	}{
		{"/pack.zip?sig=hush", 0, "fetched as a zip"},
		{"/nothing.zip?sig=hush", 3, "cannot stage .*: .*the download exited with status"},
		{"/bad.zip?sig=hush", 3, "cannot stage .*: .*the file is not a zip archive"},
	} {
		r := c.dew("", "push", "zip", "-p", dir, "-b", "http://me:secret@"+address+p.path, "-u", "process", "--no-route", "-m", "32M")
		if r.code != p.code || !regexp.MustCompile(p.want).MatchString(r.err) || strings.Contains(r.err, "secret") || strings.Contains(r.err, "hush") {
			t.Errorf("%s: status %d, want %d and %s\n%s", p.path, r.code, p.code, p.want, tail(r.err))
		}
	}
	if out := c.must(t, "logs", "zip", "--recent").out; strings.Contains(out, "secret") || strings.Contains(out, "hush") {
		t.Errorf("the log tells secrets:\n%s", out)
	}
	c.must(t, "delete", "-f", "zip")
}

// A daemon that is killed during a staging leaves a container behind. The next daemon
// removes it, keeps its output, and stages again.
func TestStagingSurvivesTheDaemon(t *testing.T) {
	c := newLimitedCell(t)
	pack := buildpack(t, map[string]string{
		"compile": `n=$(date +%s%N); echo "attempt $n"; [ -z "$SLOW" ] || sleep 3; echo "end of $n"`, "release": "echo 'default_process_types: {web: sleep 1000}'",
	})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), "x", 0o644)
	write(t, filepath.Join(dir, "manifest.yml"), "applications:\n- name: slow\n  env: {SLOW: '1'}\n  health-check-type: process\n  no-route: true\n  memory: 32M\n", 0o644)
	pushed := make(chan result, 1)
	go func() { pushed <- c.dew(dir, "push", "-b", pack) }()
	logs := func() string { return c.dew("", "logs", "slow", "--recent").out }
	eventually(t, "the first attempt", func() error {
		if strings.Count(logs(), "attempt ") < 1 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.ended
	<-pushed // which cannot reach it any more
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a second attempt to its end", func() error {
		text := logs()
		if strings.Count(text, "attempt ") != 2 || strings.Count(text, "end of ") < 1 || !strings.Contains(text, "Created image") {
			return fmt.Errorf("log:\n%s", text)
		}
		return nil
	})
	eventually(t, "nothing left behind", func() error {
		if left := c.containers(t); len(left) != 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
	c.must(t, "delete", "-f", "slow")
}
