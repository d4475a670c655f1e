//go:build bench

package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// BenchmarkRepush changes one file of an app and pushes it until its route answers. It
// compares with the push of the same app without a change, in turn. One app has 10,000
// files, and one has a Python package that is not installed again.
func BenchmarkRepush(b *testing.B) {
	c := newCell(b)
	c.start()
	router := c.router()
	for _, app := range []struct {
		name  string
		files map[string]string
		flags []string
	}{
		{"files", tenThousand(), []string{"-b", "binary_buildpack", "-c", "./testapp serve 0.0.0.0:8080"}},
		{"python", pythonApp(b), []string{"-b", "python_buildpack", "-c", "python3 -m http.server 8080"}},
	} {
		dir := filepath.Join(filepath.Dir(c.root), app.name)
		app.files["testapp"] = c.testapp()
		for name, text := range app.files {
			c.writeFile(filepath.Join(dir, name), text)
		}
		push := append([]string{"push", "bench", "--no-manifest", "-p", dir, "-m", "128M"}, app.flags...)
		c.dew(push...)
		var same, changed []time.Duration
		for i := range max(b.N, 7) {
			same = append(same, c.pushed(router, push))
			c.writeFile(filepath.Join(dir, "number"), fmt.Sprint(i))
			changed = append(changed, c.pushed(router, push))
		}
		reportTimes(b, "ms/"+app.name, changed)
		reportTimes(b, "ms/"+app.name+"-unchanged", same)
		b.ReportMetric(ms(median(changed))/ms(median(same)), app.name+"/unchanged")
		c.dew("delete", "bench", "-f", "-r")
	}
	b.ReportMetric(0, "ns/op")
	c.kill(syscall.SIGKILL)
}

// BenchmarkFirstGoPush pushes new Go apps after another one has been pushed. It compares
// with the next push of that app with a changed file, in turn.
func BenchmarkFirstGoPush(b *testing.B) {
	c := newCell(b)
	c.start()
	router := c.router()
	source := func(app string, version int) {
		dir := filepath.Join(filepath.Dir(c.root), app)
		c.writeFile(filepath.Join(dir, "go.mod"), "module bench\n\ngo 1.19\n")
		c.writeFile(filepath.Join(dir, "main.go"), fmt.Sprintf(goApp, version))
	}
	push := func(app string) []string {
		return []string{"push", app, "--no-manifest", "-p", filepath.Join(filepath.Dir(c.root), app), "-m", "128M", "-b", "go_buildpack"}
	}
	source("other", 0)
	began := time.Now()
	c.pushed(router, push("other"))
	b.ReportMetric(ms(time.Since(began)), "ms/first-of-all")
	testkit.EventuallyTrue(b, "dewd has compiled the standard library for new apps", func() bool {
		found, err := filepath.Glob(filepath.Join(c.root, "cache", "start-go-*.tar"))
		return err == nil && len(found) == 1
	})
	b.ReportMetric(ms(time.Since(began)), "ms/until-prepared")
	var first, second []time.Duration
	for i := range max(b.N, 5) {
		source("other", i+1)
		second = append(second, c.pushed(router, push("other")))
		source("new", i+1)
		first = append(first, c.pushed(router, push("new")))
		c.dew("delete", "new", "-f", "-r")
	}
	reportTimes(b, "ms/first", first)
	reportTimes(b, "ms/second", second)
	b.ReportMetric(ms(median(first))/ms(median(second)), "first/second")
	b.ReportMetric(0, "ns/op")
	c.kill(syscall.SIGKILL)
}

// goApp is a web server in Go with a number that changes it.
const goApp = `package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "version", %d) })
	fmt.Println(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}
`

// pushed returns the time of a push until the route of the app answers.
func (c *cell) pushed(router string, push []string) time.Duration {
	c.t.Helper()
	began := time.Now()
	c.dew(push...)
	ask(c.t, router, push[1])
	return time.Since(began)
}

func (c *cell) testapp() string {
	c.t.Helper()
	program, err := os.ReadFile(filepath.Join(programs, "testapp"))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(program)
}

func (c *cell) writeFile(path, text string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// tenThousand returns many small files in many folders.
func tenThousand() map[string]string {
	files := map[string]string{}
	for i := range 10_000 {
		files[fmt.Sprintf("assets/%03d/%05d.txt", i/100, i)] = fmt.Sprintf("file %d\n", i)
	}
	return files
}

// pythonApp returns an app with a package in the folder vendor.
func pythonApp(t testing.TB) map[string]string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"tiny.py":                     "name = 'tiny'\n",
		"tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
		"tiny-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"tiny-1.0.dist-info/RECORD":   "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n",
	} {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"requirements.txt": "tiny==1.0\n", "vendor/tiny-1.0-py3-none-any.whl": b.String()}
}
