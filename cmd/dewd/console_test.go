//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dewrun/dew/testkit"
)

// hostile is a text that would change the title of a page that used it as HTML.
const hostile = `<img src=x onerror=document.title='owned'><script>document.title='owned'</script>`

// consoleTest is a dewd with a browser that shows its console.
type consoleTest struct {
	*routeTest
	*tab
	guid string // of the app shop
}

// The console in a real browser, with a real dewd. The steps depend on each other.
func TestConsole(t *testing.T) {
	runParallel(t)
	address := fmt.Sprintf("127.0.0.1:%d", testkit.FreePorts(t, 1)) // the page must find dewd again after a restart
	c := &consoleTest{routeTest: newRouteTest(t, "--listen", address), tab: newBrowser(t)}
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"link", c.logsIn},
		{"functions", c.checksFunctions},
		{"push", c.showsPush},
		{"logs", c.followsLogs},
		{"hidden", c.restsWhileHidden},
		{"crash", c.showsCrash},
		{"scale", c.scales},
		{"hostile", c.keepsText},
		{"terminal", c.opensTerminal},
		{"crashed files", c.opensCrashedFiles},
		{"routes and services", c.changesRoutes},
		{"daemon", c.showsDaemon},
		{"accessibility", c.isAccessible},
		{"auditor", c.refusesAuditor},
		{"restart", c.comesBack},
		{"logout", c.logsOut},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// in makes helpers report to the test of a step.
func (c *consoleTest) in(t *testing.T) {
	t.Helper()
	before := c.tab.t
	c.tab.t, c.cell.t = t, t
	t.Cleanup(func() { c.tab.t, c.cell.t = before, before })
}

// link returns a link that opens the console as the administrator.
func (c *consoleTest) link() string {
	c.cell.t.Helper()
	var link struct{ URL string }
	if err := json.Unmarshal([]byte(c.dewOutput("console", "--json")), &link); err != nil || link.URL == "" {
		c.cell.t.Fatalf("dew console: %+v, %v", link, err)
	}
	return link.URL
}

func (c *consoleTest) logsIn(t *testing.T) {
	c.in(t)
	c.open(c.status.API + "/console/")
	c.awaitText("main", "dew console") // without a session it says how to get one
	link := c.link()
	c.open(link)
	c.awaitText("h1", "Apps")
	c.awaitText(".empty", "dew push")
	if got := c.text("location.pathname + location.hash"); got != "/console/" {
		t.Errorf("the address after the login is %s, want /console/ without the code", got)
	}
	again := c.other(t)
	again.open(link)
	again.awaitText("main", "already used")
	c.logsInWithPassword(again)
}

// logsInWithPassword uses the login page for dashboards, as a browser sends its form.
func (c *consoleTest) logsInWithPassword(b *tab) {
	c.cell.t.Helper()
	password, err := os.ReadFile(filepath.Join(c.root, "admin-password"))
	if err != nil {
		c.cell.t.Fatal(err)
	}
	b.open(c.status.API + "/uaa/login")
	b.run(fmt.Sprintf(`document.getElementById("username").value = "admin"; document.getElementById("password").value = %q`, strings.TrimSpace(string(password))))
	b.click("Log in")
	b.awaitText("main", "You are logged in as admin")
}

func (c *consoleTest) checksFunctions(t *testing.T) {
	c.in(t)
	script, err := os.ReadFile(filepath.Join("..", "..", "console", "testdata", "check.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Replace(string(script), "export async function check", "async function check", 1)
	got := c.text(`(async () => { ` + body + `
		return (await check((name) => import("/console/" + name))).join("\n"); })()`)
	if got != "" {
		t.Error(got)
	}
}

func (c *consoleTest) showsPush(t *testing.T) {
	c.in(t)
	dir := filepath.Join(filepath.Dir(c.root), "shop")
	program, err := os.ReadFile(filepath.Join(programs, "routeapp"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "routeapp"), program, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "hello"), []byte("\x1b[32mINFO\x1b[0m "+hostile+"\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	manifest := testkit.WriteFile(t, filepath.Join(filepath.Dir(c.root), "shop.yml"), fmt.Sprintf(`applications:
- name: shop
  path: %s
  command: cat hello; exec ./routeapp web
  memory: 128M
  buildpacks: [binary_buildpack]
  env:
    HOSTILE: %q
  sidecars:
  - name: config-server
    process_types: [web]
    memory: 32M
    command: ./routeapp side 127.0.0.1:8181
`, dir, hostile))
	c.dew("push", "-f", manifest)
	c.awaitText("tr .name", "shop")
	c.awaitText("tr .state", "running")
	c.await("the bar has a part for each process", `document.querySelectorAll(".membar .part").length === 2`)
	c.awaitText(".legend", "config-server")
	c.guid = c.appGUID("shop")
	c.checkProblems()
}

func (c *consoleTest) followsLogs(t *testing.T) {
	c.in(t)
	c.visit("/apps/" + c.guid + "/logs")
	c.awaitText(".row .text", hostile)
	c.await("the colour of the line is applied", `[...document.querySelectorAll(".row .fg2")].some((e) => e.textContent === "INFO")`)
	c.get("shop", "/marker-in-the-log") // the router logs it while the page follows
	c.awaitText(".row .text", "marker-in-the-log")
	c.dew("kill", "shop", "--sidecar", "config-server")
	c.awaitText(".row.died", "config-server")
	c.awaitText(".chips button", "config-server")
	c.click("config-server")
	c.await("only lines of the sidecar and marks remain", `![...document.querySelectorAll(".row .text")].some((e) => e.textContent.includes("marker-in-the-log"))`)
	c.click("config-server")
	c.awaitText(".row .text", "marker-in-the-log")
	c.run(`(() => { const i = document.querySelector("main input[type=search]"); i.value = "/marker-\\w+-the/"; i.dispatchEvent(new Event("input")); })()`)
	c.await("the regular expression selects one line", `document.querySelectorAll(".row mark").length > 0 && document.querySelectorAll(".row").length === 1`)
	c.run(`document.querySelector(".row .at").click()`)
	c.awaitText(".detail", "marker-in-the-log")
	c.await("the address names the line", `/[?&]line=\d+/.test(location.search)`)
	c.checkProblems()
}

// restsWhileHidden hides the page: it closes all streams, and opens them again without a
// missing line.
func (c *consoleTest) restsWhileHidden(t *testing.T) {
	c.in(t)
	c.visit("/apps/" + c.guid + "/logs")
	c.awaitText(".logfoot", "Following new lines")
	if got := c.text(`String(openStreams())`); got != "1" {
		t.Errorf("%s event streams are open, want 1", got)
	}
	c.run(`setHidden(true)`)
	if got := c.text(`String(openStreams())`); got != "0" {
		t.Errorf("%s event streams are open while the page is hidden, want 0", got)
	}
	c.get("shop", "/marker-while-hidden")
	c.run(`setHidden(false)`)
	c.awaitText(".row .text", "marker-while-hidden")
	c.awaitText(".logfoot", "Following new lines")
	c.checkProblems()
}

func (c *consoleTest) showsCrash(t *testing.T) {
	c.in(t)
	c.visit("/apps/" + c.guid + "/crashes")
	c.awaitText(".death .sentence", "config-server")
	c.awaitText(".death .evidence", "config-server")
	c.awaitText(".death summary", "Last lines of web")
	c.visit("/")
	c.awaitText("tr .crash", "config-server")
	c.awaitText("tr .state", "running")
	c.checkProblems()
}

func (c *consoleTest) scales(t *testing.T) {
	c.in(t)
	c.visit("/apps/" + c.guid)
	c.awaitText("tbody th strong", "web/0")
	c.click("Scale shop")
	c.await("the dialog has the present number", `document.querySelector("dialog[open] [name=instances]")?.value === "1"`)
	c.run(`document.querySelector("dialog[open] [name=instances]").value = "2"`)
	c.click("Scale")
	c.awaitText("tbody th strong", "web/1")
	c.await("both run", `document.querySelectorAll("tbody tr .state.good").length === 2`)
	c.await("the charts are drawn", `document.querySelectorAll(".chart canvas").length === 4`)
	c.checkProblems()
}

func (c *consoleTest) keepsText(t *testing.T) {
	c.in(t)
	c.click("Show the names of the variables")
	c.await("the value is hidden", `document.querySelector("[aria-label='Show the value of HOSTILE']") && !document.body.textContent.includes("onerror")`)
	c.click("Show the value of HOSTILE")
	c.awaitText("span.secret", hostile)
	body, err := json.Marshal(map[string]any{"name": hostile, "relationships": map[string]any{"space": map[string]any{"data": map[string]string{"guid": c.routeTest.guid("/v3/spaces?names=dev")}}}})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := c.ask(http.MethodPost, "/v3/apps", string(body)); status != http.StatusCreated {
		t.Fatalf("POST /v3/apps: %d %s", status, text)
	}
	c.visit("/")
	c.awaitText("tr .name", hostile)
	c.visit("/events")
	c.awaitText("td", hostile)
	if got := c.text(`document.title + document.querySelectorAll("main img, main script").length`); got != "Events – dew0" {
		t.Errorf("title and elements: %q", got)
	}
	c.checkProblems()
}

func (c *consoleTest) opensTerminal(t *testing.T) {
	c.in(t)
	c.visit("/apps/" + c.guid + "/terminal")
	c.await("the terminal is connected", `document.querySelector(".xterm-rows")?.textContent.trim()`)
	c.press("echo answer=$((6*7)) $CF_INSTANCE_INDEX\r")
	c.awaitText(".xterm-rows", "answer=42 0")
	c.press("exit 3\r")
	c.awaitText(".tools", "status 3")
	c.checkProblems()
}

// opensCrashedFiles opens a shell in the files of the crash that the steps before
// caused.
func (c *consoleTest) opensCrashedFiles(t *testing.T) {
	c.in(t)
	c.visit("/apps/" + c.guid + "/crashes")
	c.click("Open a shell in the crashed files")
	c.await("the terminal is connected", `document.querySelector(".xterm-rows")?.textContent.trim()`)
	c.awaitText(".tools", "Files of crash 1")
	c.press("echo found=$(ls | grep -c routeapp)\r")
	c.awaitText(".xterm-rows", "found=1")
	c.checkProblems()
}

// fill sets the fields of the open dialog.
func (c *consoleTest) fill(values map[string]string) {
	c.cell.t.Helper()
	c.await("a dialog is open", `document.querySelector("dialog[open] form")`)
	for name, value := range values {
		c.run(fmt.Sprintf(`(() => { const f = document.querySelector("dialog[open] [name=%s]"); f.value = %q; f.dispatchEvent(new Event("change")); })()`, name, value))
	}
}

// changesRoutes creates, maps, unmaps and deletes a route, and asks before it deletes a
// service instance.
func (c *consoleTest) changesRoutes(t *testing.T) {
	c.in(t)
	c.visit("/routes")
	c.click("Create a route")
	c.fill(map[string]string{"host": "second"})
	c.click("Create")
	const url = "second.dew.localhost"
	c.awaitText("tr .name", url)
	c.click("Map " + url)
	c.fill(map[string]string{"app": c.guid})
	c.click("Map")
	c.click("Remove shop from " + url)
	c.click("Remove")
	c.awaitText("tr .none", "status 404")
	c.click("Delete " + url)
	c.click("Delete")
	c.await("the route is gone", `document.querySelector("tr .name") && ![...document.querySelectorAll("tr .name")].some((e) => e.textContent === "`+url+`")`)
	c.dew("create-user-provided-service", "mailer", "-p", `{"host":"mail.example.com"}`)
	c.visit("/services")
	c.awaitText("tr .name", "mailer")
	c.click("Bind mailer")
	c.fill(map[string]string{"app": c.guid})
	c.click("Bind")
	c.awaitText("td a", "shop")
	c.click("Unbind mailer from shop")
	c.click("Unbind")
	c.awaitText("td .none", "none")
	c.click("Delete mailer")
	c.click("Cancel")
	c.awaitText("tr .name", "mailer")
	c.click("Delete mailer")
	c.click("Delete")
	c.awaitText(".empty", "dew marketplace")
	c.createsDatabase()
	c.previewsTemplate()
	c.checkProblems()
}

// createsDatabase creates an instance of a built-in service and deletes it.
func (c *consoleTest) createsDatabase() {
	c.cell.t.Helper()
	c.click("Create a service instance")
	c.await("a dialog with the plans is open", `document.querySelector("dialog[open] [name=plan]")`)
	c.run(`(() => { const f = document.querySelector("dialog[open] [name=plan]"); f.value = [...f.options].find((o) => o.textContent === "redis small").value; })()`)
	c.fill(map[string]string{"name": "cache"})
	c.click("Create")
	c.awaitText("td", "redis small")
	c.awaitText("td", "create succeeded")
	c.click("Delete cache")
	c.click("Delete")
	c.awaitText(".empty", "dew marketplace")
}

// previewsTemplate renders a template of the page, and reports a mistake in it.
func (c *consoleTest) previewsTemplate() {
	c.cell.t.Helper()
	c.visit("/inbox")
	c.awaitText(".tools a", "Preview a template")
	c.visit("/preview")
	c.await("a form", `document.getElementById("html")`)
	const set = `document.getElementById("html").value = `
	c.run(set + `"<p>For {{.Subject}}</p>"`)
	c.click("Preview")
	c.awaitText("pre.lines", "For Your invoice")
	c.click("HTML")
	c.await("the HTML is in a sandbox", `document.querySelector("iframe.mailbody[sandbox]").srcdoc.includes("For Your invoice")`)
	c.run(set + `"{{.Nope}}"`)
	c.click("Preview")
	c.awaitText(".problem", "Nope")
}

// showsDaemon shows the checks of the machine, and ends the session of another browser.
func (c *consoleTest) showsDaemon(t *testing.T) {
	c.in(t)
	b := c.other(t)
	b.open(c.link())
	b.awaitText("tr .name", "shop")
	c.visit("/daemon")
	c.awaitText(".checks th", "overlayfs")
	c.await("two sessions", `document.querySelectorAll("[data-key=sessions] tbody tr").length === 2`)
	c.run(`[...document.querySelectorAll("[data-key=sessions] tbody tr")].find((r) => !r.textContent.includes("this page")).querySelector("button").click()`)
	c.click("End session")
	c.await("one session", `document.querySelectorAll("[data-key=sessions] tbody tr").length === 1`)
	b.visit("/routes")
	b.awaitText("main", "The session of this page has ended")
	c.checkProblems()
}

func (c *consoleTest) isAccessible(t *testing.T) {
	c.in(t)
	for _, p := range []struct{ path, selector, text string }{
		{"/", "tr .name", "shop"},
		{"/apps/" + c.guid, "#env-title", "Environment"},
		{"/apps/" + c.guid + "/logs", ".row .text", "marker-in-the-log"},
		{"/apps/" + c.guid + "/crashes", ".sentence", "config-server"},
		{"/apps/" + c.guid + "/terminal", ".tools", "Instance"},
		{"/crashes", ".sentence", "config-server"},
		{"/services", ".empty", "dew marketplace"},
		{"/routes", "tr .name", "shop.dew.localhost"},
		{"/events", "td", "audit.app"},
		{"/inbox", ".empty", "dew notify-on-crash"},
		{"/preview", ".panel", "Values of its placeholders"},
		{"/daemon", ".checks th", "overlayfs"},
		{"/sessions", "tbody th", "this page"},
	} {
		c.visit(p.path)
		c.awaitText(p.selector, p.text)
		c.run(`document.documentElement.dataset.theme = "light"`)
		c.checkAccessibility(t)
		c.run(`document.documentElement.dataset.theme = "dark"`)
		c.checkAccessibility(t, "color-contrast")
		c.checkProblems()
	}
}

// refusesAuditor logs in as a space auditor: the page offers no write, and dewd refuses
// one.
func (c *consoleTest) refusesAuditor(t *testing.T) {
	c.in(t)
	c.dewOutput("create-user", "ada", "secret word")
	c.dewOutput("set-space-role", "ada", "local", "dev", "SpaceAuditor")
	form := url.Values{"grant_type": {"password"}, "username": {"ada"}, "password": {"secret word"}}
	var token struct {
		Token string `json:"access_token"`
	}
	c.post(t, "/uaa/oauth/token", "Basic Y2Y6", form.Encode(), &token)
	var link struct{ URL string }
	c.post(t, "/dew/v1/console/link", "bearer "+token.Token, "", &link)
	b := c.other(t)
	b.open(link.URL)
	b.awaitText("tr .name", "shop")
	b.await("all writes are disabled", `document.querySelectorAll(".act button").length > 3 && [...document.querySelectorAll(".act button")].every((e) => e.disabled)`)
	b.await("no page for administrators", `![...document.querySelectorAll("nav a")].some((e) => ["Daemon", "Inbox"].includes(e.textContent))`)
	got := b.text(`(async () => {
		const api = await import("/console/api.js");
		const out = [];
		for (const [method, path, body] of [["POST", "/v3/apps/` + c.guid + `/actions/stop"], ["DELETE", "/v3/apps/` + c.guid + `"], ["POST", "/v3/apps/` + c.guid + `/processes/web/actions/scale", { instances: 1 }],
			["GET", "/dew/v1/doctor"], ["DELETE", "/v3/routes/" + (await api.list("/v3/routes")).resources[0].guid]]) {
			out.push(await api.send(method, path, body).then(() => "done", (err) => String(err.status)));
		}
		return out.join();
	})()`)
	if got != "403,403,403,403,403" {
		t.Errorf("writes of an auditor: %s, want status 403 for each", got)
	}
	b.visit("/routes")
	b.await("no write about routes", `document.querySelectorAll(".act button").length && [...document.querySelectorAll("main button")].every((e) => e.disabled)`)
	b.visit("/apps/" + c.guid)
	b.awaitText("#env-title ~ p", "Only users with the role SpaceDeveloper")
	b.visit("/apps/" + c.guid + "/terminal")
	b.awaitText(".problem", "SpaceDeveloper")
	b.checkProblems()
}

// post sends a form, or nothing.
func (c *consoleTest) post(t *testing.T, path, authorization, form string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.status.API+path, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization)
	if form != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := c.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode >= http.StatusBadRequest {
		t.Fatalf("POST %s: %d, %v", path, res.StatusCode, err)
	}
}

// comesBack kills dewd and starts it again: the page says so, and continues by itself
// with the same session.
func (c *consoleTest) comesBack(t *testing.T) {
	c.in(t)
	c.visit("/apps/" + c.guid + "/logs")
	c.awaitText(".row .text", "marker-in-the-log")
	c.kill(syscall.SIGKILL)
	c.await("the page says that dewd is away", `!document.getElementById("away").hidden`)
	c.startDewd()
	c.await("the page has connected again", `document.getElementById("away").hidden`)
	c.eventually("the route works", func() error {
		if status, body := c.get("shop", "/marker-after-the-restart"); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	c.awaitText(".row .text", "marker-after-the-restart")
}

func (c *consoleTest) logsOut(t *testing.T) {
	c.in(t)
	c.click("Log out")
	c.awaitText("main", "You have logged out")
	c.open(c.status.API + "/console/")
	c.awaitText("main", "dew console")
}
