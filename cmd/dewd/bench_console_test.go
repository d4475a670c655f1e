//go:build bench

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dewrun/dew/testkit"
)

// consoleBench is a dewd with 100 apps, one of them running, and a browser.
type consoleBench struct {
	*routeTest
	*tab
	b *testing.B
}

// BenchmarkConsole measures the web console in a real browser: the first view with 100
// apps, a line of the log until the page has drawn it, the heap of a page that scrolls
// through a million lines, and the cost of an open page for dewd.
func BenchmarkConsole(b *testing.B) {
	c := &consoleBench{routeTest: newRouteTest(b), b: b}
	c.dew("apply-manifest", "-f", c.manyApps(100))
	c.dew("push", "-f", c.benchApp())
	idle := c.load()
	c.tab = newBrowser(b)
	var link struct{ URL string }
	if err := json.Unmarshal([]byte(c.dewOutput("console", "--json")), &link); err != nil {
		b.Fatal(err)
	}
	c.open(link.URL)
	c.awaitText("tr .name", "bench")
	c.firstView()
	open := c.load()
	b.ReportMetric(open-idle, "%CPU-page")
	b.ReportMetric(c.resident(), "MB-with-page")
	c.lineToPixels()
	c.scroll()
	b.ReportMetric(0, "ns/op")
	c.kill(syscall.SIGKILL)
}

// number returns the value of an expression.
func (c *consoleBench) number(expression string) float64 {
	c.b.Helper()
	v, err := strconv.ParseFloat(c.text(`Promise.resolve(`+expression+`).then(String)`), 64)
	if err != nil {
		c.b.Fatal(err)
	}
	return v
}

// firstView loads the page many times, until the first rows are drawn.
func (c *consoleBench) firstView() {
	var took []float64
	for range max(c.b.N, 15) {
		c.open(c.status.API + "/console/")
		took = append(took, c.number(`new Promise((done) => { const look = () => (document.querySelector("tbody tr") ? requestAnimationFrame(() => done(performance.now())) : setTimeout(look, 2)); look(); })`))
	}
	slices.Sort(took)
	c.b.ReportMetric(took[len(took)/2], "ms/first-view")
}

// load returns the part of a core that dewd uses within 30 s, as a percentage.
func (c *consoleBench) load() float64 {
	began, before := time.Now(), c.ticks()
	time.Sleep(30 * time.Second)
	return float64(c.ticks()-before) / time.Since(began).Seconds() // 100 ticks are a second
}

// ticks returns the processor time of dewd in hundredths of a second.
func (c *consoleBench) ticks() int {
	c.b.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.cmd.Process.Pid), "stat"))
	if err != nil {
		c.b.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	user, uerr := strconv.Atoi(fields[11])
	system, serr := strconv.Atoi(fields[12])
	if uerr != nil || serr != nil {
		c.b.Fatal(uerr, serr)
	}
	return user + system
}

// lineToPixels sends requests, and measures until the page has drawn the router's line
// about each. The time of the request is included.
func (c *consoleBench) lineToPixels() {
	c.visit("/apps/" + c.guid("/v3/apps?names=bench") + "/logs")
	c.awaitText(".logfoot", "Following new lines")
	c.run(`window.seen = {}; new MutationObserver((changes) => { for (const n of changes.flatMap((m) => [...m.addedNodes])) {
		const k = /mark-\d+-/.exec(n.textContent);
		if (k) requestAnimationFrame(() => setTimeout(() => { seen[k[0]] ??= performance.timeOrigin + performance.now(); }));
	} }).observe(document.querySelector(".logbox .space"), { childList: true }); 0`)
	const lines = 300
	sent := map[string]float64{}
	for i := range lines {
		mark := fmt.Sprintf("mark-%d-", i)
		sent[mark] = float64(time.Now().UnixMicro()) / 1000
		if status, body := c.get("bench", "/"+mark); status == http.StatusBadGateway {
			c.b.Fatalf("%d %s", status, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.await("all lines are drawn", fmt.Sprintf(`Object.keys(seen).length === %d`, lines))
	var seen map[string]float64
	if err := json.Unmarshal([]byte(c.text(`JSON.stringify(seen)`)), &seen); err != nil {
		c.b.Fatal(err)
	}
	var late []float64
	for mark, at := range seen {
		late = append(late, at-sent[mark])
	}
	slices.Sort(late)
	c.b.ReportMetric(late[lines/2], "ms/line-p50")
	c.b.ReportMetric(late[lines*99/100], "ms/line-p99")
}

// scroll prints a million lines, scrolls back through them for 30 s, and measures the
// largest heap of the page.
func (c *consoleBench) scroll() {
	c.dew("run-task", "bench", "--command", "seq -f 'line %.0f of a million lines' 1000000; echo the end of the lines")
	err := testkit.Until(func() error {
		if out := c.dewOutput("logs", "bench", "--recent", "-n", "200"); !strings.Contains(out, "the end of the lines") {
			return fmt.Errorf("the task is still printing")
		}
		return nil
	})
	if err != nil {
		c.b.Fatal(err)
	}
	c.visit("/")
	c.visit("/apps/" + c.guid("/v3/apps?names=bench") + "/logs")
	c.await("the page has lines", `document.querySelectorAll(".row").length > 10`)
	c.b.ReportMetric(c.number(`performance.memory.usedJSHeapSize / 1e6`), "MB-heap-before")
	c.b.ReportMetric(c.number(`(async () => {
		const box = document.querySelector(".logbox");
		let most = 0;
		for (const end = performance.now() + 30000; performance.now() < end;) {
			box.scrollTop = Math.max(0, box.scrollTop - 4000);
			await new Promise(requestAnimationFrame);
			most = Math.max(most, performance.memory.usedJSHeapSize);
		}
		return most / 1e6;
	})()`), "MB-heap-most")
}
