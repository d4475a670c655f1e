//go:build integration

package examples_test

import (
	"encoding/xml"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// smokePatience is only for a hang: every folder has its own time limit.
const smokePatience = 15 * time.Minute

// junit holds the parts of a report that the tests check.
type junit struct {
	XMLName xml.Name `xml:"testsuites"`
	Suites  []suite  `xml:"testsuite"`
}

type suite struct {
	Name     string     `xml:"name,attr"`
	Time     string     `xml:"time,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Cases    []testcase `xml:"testcase"`
	Out      string     `xml:"system-out"`
}

type testcase struct {
	Name    string    `xml:"name,attr"`
	Failure *failure  `xml:"failure"`
	Skipped *struct{} `xml:"skipped"`
}

type failure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// smoke runs dew smoke in a temporary folder, and reads its report.
func smoke(t *testing.T, args ...string) (result, junit) {
	t.Helper()
	dir := t.TempDir()
	r := dewd.within(smokePatience, dir, "dew", append([]string{"smoke", "--quiet", "--junit", "report.xml"}, args...)...)
	b, err := os.ReadFile(filepath.Join(dir, "report.xml"))
	if err != nil {
		t.Fatalf("status %d, and no report: %v\n%s", r.code, err, r.err)
	}
	var report junit
	if err := xml.Unmarshal(b, &report); err != nil {
		t.Fatalf("the report cannot be read: %v\n%s", err, b)
	}
	for _, s := range report.Suites {
		failed, skipped := 0, 0
		for _, c := range s.Cases {
			if c.Failure != nil {
				failed++
			}
			if c.Skipped != nil {
				skipped++
			}
		}
		if s.Tests != len(s.Cases) || s.Failures+s.Errors != failed || s.Skipped != skipped {
			t.Errorf("suite %s counts %d, %d failed, %d skipped; it has %d, %d, %d", s.Name, s.Tests, s.Failures+s.Errors, s.Skipped, len(s.Cases), failed, skipped)
		}
	}
	return r, report
}

// folders returns the folders of the examples that have a smoke.yml, sorted: the sound
// ones and the broken ones.
func folders(t *testing.T) (sound, broken []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "smoke.yml" {
			return err
		}
		if dir := filepath.Dir(path); strings.HasPrefix(dir, "broken/") {
			broken = append(broken, filepath.Base(dir))
		} else {
			sound = append(sound, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sound, broken
}

// Every example passes the checks of its smoke.yml, and the report has all of them.
func TestSmoke(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	before := inventory(t)
	sound, _ := folders(t)
	lanes := [][]string{{filepath.Join(here, "...")}}
	if os.Getenv("DEW_PROOF") == "" {
		lanes = sideBySide(here, sound)
	}
	reports := make([]junit, len(lanes))
	t.Run("runs", func(t *testing.T) {
		for i, lane := range lanes {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				r, report := smoke(t, lane...)
				if r.code != 0 {
					t.Errorf("status %d\n%s%s", r.code, r.out, r.err)
				}
				reports[i] = report
			})
		}
	})
	var got []string
	for _, report := range reports {
		for _, s := range report.Suites {
			t.Logf("%s: %s s", s.Name, s.Time)
			if s.Failures+s.Errors+s.Skipped > 0 {
				t.Errorf("%s: %d failed, %d skipped", s.Name, s.Failures+s.Errors, s.Skipped)
			}
			name, err := filepath.Rel(here, s.Name)
			if err != nil {
				t.Error(err)
			}
			got = append(got, name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, sound) || len(sound) == 0 {
		t.Errorf("the report has %q, want %q", got, sound)
	}
	checkNothingLeft(t, before)
}

// Files that the examples write during tests are ignored by git.
func TestReportsAreIgnored(t *testing.T) {
	for _, file := range []string{"report.xml", "ci/smoke.xml", "ci/smoke.tar.gz", "hello-go/report.xml", "smoke-hello-go.tar.gz", "config-sidecar/build/app", "../report.xml"} {
		if out, err := exec.Command("git", "-c", "safe.directory=*", "check-ignore", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// The commands of a README work right after a clone. The push builds its files itself,
// with the same commands as in smoke.yml.
func TestReadmesBuild(t *testing.T) {
	sound, _ := folders(t)
	for _, dir := range sound {
		text, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Error(err)
			continue
		}
		manifest, err := os.ReadFile(filepath.Join(dir, "manifest.yml"))
		if err != nil {
			t.Error(err)
			continue
		}
		spec, err := os.ReadFile(filepath.Join(dir, "smoke.yml"))
		if err != nil {
			t.Error(err)
			continue
		}
		name := regexp.MustCompile(`(?m)^- name: (.+)$`).FindStringSubmatch(string(manifest))[1]
		first, _, _ := strings.Cut(string(text)[strings.Index(string(text), "dew push"):], "\n")
		if built := strings.Contains("\n"+string(spec), "\nbuild:"); built != strings.Contains(first, "--build") {
			t.Errorf("%s: smoke.yml builds: %t, and README has %q", dir, built, first)
		}
		if !strings.Contains(string(text), "$(dew open "+name) || strings.Contains(string(text), "go build") {
			t.Errorf("%s: README builds by itself, or does not ask with dew open %s", dir, name)
		}
	}
}

// sideBySide divides the folders into two runs. Go's library is compiled in one of them
// while the other waits for starts and crashes.
func sideBySide(here string, all []string) [][]string {
	lanes := make([][]string, 2)
	for _, name := range all {
		i := 0
		if name == "hello-go" {
			i = 1
		}
		lanes[i] = append(lanes[i], filepath.Join(here, name, "..."))
	}
	return lanes
}

// inventory returns the daemon's resources that a smoke run could leave behind.
func inventory(t *testing.T) (all []string) {
	t.Helper()
	for _, path := range []string{"/v3/organizations", "/v3/spaces", "/v3/apps", "/v3/service_instances", "/v3/routes"} {
		for _, found := range read[struct{ Resources []struct{ GUID string } }](t, "curl", path+"?per_page=5000").Resources {
			all = append(all, path+"/"+found.GUID)
		}
	}
	slices.Sort(all)
	return append(all, dew(t, "", "clients").out)
}

// checkNothingLeft checks that the daemon has the same resources as before.
func checkNothingLeft(t *testing.T, before []string) {
	t.Helper()
	if now := inventory(t); !slices.Equal(now, before) {
		t.Errorf("after the run there is %q, before it %q", now, before)
	}
}

// Every broken app has its own status, and a message with the problem and the fix.
func TestBrokenApps(t *testing.T) {
	wanted := map[string]fault{
		"exits-at-once":               {4, "push", "exits-at-once crashed while starting: web finished with exit status 0", "Start the program in the foreground"},
		"crashes-later":               {4, "", "crashed: web failed with status 1: out of paper: cannot print the next ticket", "dew logs crashes-later"},
		"sidecar-out-of-memory":       {7, "push", "sidecar-out-of-memory crashed while starting: sidecar cache ran out of memory: it reached its limit of 64M", "Set `memory: 96M` for sidecar cache"},
		"never-healthy":               {5, "push", "never-healthy did not become healthy: web did not open port 8080 within 3s", "listen on 0.0.0.0:$PORT"},
		"localhost-only":              {5, "push", "localhost-only did not become healthy: the app listens on 127.0.0.1:8080", "Listen on 0.0.0.0:$PORT"},
		"wrong-port":                  {5, "push", "wrong-port did not become healthy: the app listens on port 3000, but it must listen on $PORT (8080)", "environment variable PORT"},
		"wrong-endpoint":              {5, "push", "wrong-endpoint did not become healthy: the health check of web failed: GET /health answered 404", "health-check-http-endpoint"},
		"missing-variable":            {4, "push", "missing-variable crashed while starting: web failed with status 1: the environment variable GREETING is not set", "dew logs missing-variable"},
		"disk-quota":                  {4, "push", "disk-quota crashed while starting: web failed with status 1 after the instance had used 32M of its 32M disk limit; the largest directory is /home/vcap/app/spool", "`disk_quota: 64M`"},
		"missing-library":             {4, "push", "missing-library crashed while starting: ./app could not start: libgreeting.so.1 is missing in stack host", "apt-file search libgreeting.so.1"},
		"no-start-command":            {4, "push", "cannot start no-start-command: No start command found", "add a Procfile"},
		"wrong-command":               {4, "push", "wrong-command crashed while starting: web could not start: command ./ap was not found", "Check `command` in the manifest"},
		"java-out-of-memory":          {4, "push", "java-out-of-memory crashed while starting: the JVM of web ran out of memory: its heap of 140M is full", "Set `memory: 384M` in the manifest"},
		"node-out-of-memory":          {7, "push", "node-out-of-memory crashed while starting: web ran out of memory: it reached its limit of 128M", "Set `memory: 192M` in the manifest"},
		"java-sidecar-without-memory": {4, "push", "sidecar 'debug' of process 'web' has no memory value", "set applications[].sidecars[].memory in the manifest"},
	}
	before := inventory(t)
	_, all := folders(t)
	if len(all) != len(wanted) {
		t.Errorf("folders %q, want one for each of %d faults", all, len(wanted))
	}
	t.Run("runs", func(t *testing.T) {
		for _, name := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel() // mostly they wait for a timeout
				runBrokenApp(t, name, wanted[name])
			})
		}
	})
	checkNothingLeft(t, before)
}

// fault is the expected result of a broken app.
type fault struct {
	status       int
	step         string // step that fails, empty if it depends on the speed of the machine
	message, how string
}

// runBrokenApp runs a folder that must fail.
func runBrokenApp(t *testing.T, name string, w fault) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("broken", name))
	if err != nil {
		t.Fatal(err)
	}
	r, report := smoke(t, "--no-bundle", dir)
	if r.code != w.status || !strings.Contains(r.err, w.message) || !strings.Contains(r.err, w.how) {
		t.Errorf("status %d, want %d with %q and %q:\n%s", r.code, w.status, w.message, w.how, r.err)
	}
	if len(report.Suites) != 1 || report.Suites[0].Failures != 1 {
		t.Fatalf("report %+v, want one suite with one failure", report)
	}
	for _, c := range report.Suites[0].Cases {
		if c.Failure != nil && (w.step != "" && c.Name != w.step || !strings.Contains(c.Failure.Message, w.message) || !strings.Contains(c.Failure.Text, w.message)) {
			t.Errorf("%s failed with %+v, want %s with %q", c.Name, *c.Failure, w.step, w.message)
		}
	}
}

// A push of an app that crashes later succeeds, because the app did run.
func TestPushOfWhatCrashesLater(t *testing.T) {
	const name = "crashes-later"
	dir := t.TempDir()
	command(t, "", "go", "build", "-trimpath", "-o", filepath.Join(dir, "build")+"/", "./broken/app")
	b, err := os.ReadFile("broken/crashes-later/manifest.yml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "manifest.yml"), string(b), 0o644)
	deleteLater(t, name)
	dew(t, dir, "push")
	waitForPage(t, name, "/", "hello\n")
	eventually(t, "its crash", func() error {
		for _, c := range read[[]crash](t, "crashes", name, "--json") {
			if c.Description == "APP/PROC/WEB: Exited with status 1" {
				return nil
			}
		}
		return os.ErrNotExist
	})
}
