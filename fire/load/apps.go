package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/fire/world"
)

// App is an app of the load.
type App struct {
	Name      string
	GUID      string
	Process   string // guid of the process web
	Instances int
	Lines     int // that each process prints per second
}

// Sidecar is the name of the sidecar of every app.
const Sidecar = "companion"

// sidecarAddress is where the sidecar listens inside its instance.
const sidecarAddress = "127.0.0.1:7777"

// Plan returns the apps of a load. Every third app has two instances. Each process prints
// a number of lines per second.
func Plan(n, lines int) []App {
	apps := make([]App, n)
	for i := range apps {
		apps[i] = App{Name: fmt.Sprintf("app-%02d", i), Instances: 1, Lines: lines}
		if i%3 == 0 {
			apps[i].Instances = 2
		}
	}
	return apps
}

// Slots returns the instances that should run.
func Slots(apps []App) []world.Slot {
	var out []world.Slot
	for _, a := range apps {
		for i := range a.Instances {
			out = append(out, world.Slot{App: a.Name, Index: i})
		}
	}
	return out
}

// manifest is the manifest of the apps. Their health checks have different types.
func manifest(apps []App, path string) string {
	var b strings.Builder
	b.WriteString("applications:\n")
	for i, a := range apps {
		check := []string{"http", "port", "process"}[i%3]
		fmt.Fprintf(&b, `- name: %s
  buildpacks: [binary_buildpack]
  path: %s
  command: ./counter main
  instances: %d
  memory: 96M
  disk_quota: 64M
  health-check-type: %s
  env: {LINES: "%d"}
  sidecars:
  - {name: %s, process_types: [web], command: ./counter sidecar %s, memory: 32MB}
`, a.Name, path, a.Instances, check, a.Lines, Sidecar, sidecarAddress)
	}
	return b.String()
}

// Push pushes the apps and fills in their guids.
func Push(ctx context.Context, w *world.World, apps []App) error {
	folder := filepath.Join(w.Dir, "app")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(w.Bin, "counter"))
	if err != nil {
		return err
	}
	file := filepath.Join(w.Dir, "manifest.yml")
	if err := writeFiles(map[string]string{filepath.Join(folder, "counter"): string(program), file: manifest(apps, folder)}); err != nil {
		return err
	}
	if _, err := w.Dew(ctx, "push", "-f", file); err != nil {
		return err
	}
	for i := range apps {
		a, err := w.Client.Apps().ByName(ctx, apps[i].Name)
		if err != nil {
			return err
		}
		ps, err := w.Client.Processes().List(ctx, a.GUID)
		if err != nil {
			return err
		}
		apps[i].GUID, apps[i].Process = a.GUID, ps[0].GUID
	}
	return nil
}

func writeFiles(files map[string]string) error {
	for path, data := range files {
		if err := os.WriteFile(path, []byte(data), 0o755); err != nil { //nolint:forbidigo // files of a test run need not be durable
			return err
		}
	}
	return nil
}

// answer is what an app responds.
type answer struct {
	Instance string `json:"instance"`
	Index    string `json:"index"`
	Main     int    `json:"main"`
	Sidecar  int    `json:"sidecar"`
}

// requestTimeout limits one request to an app.
const requestTimeout = 5 * time.Second

// Request sends a request to an app and notes what its processes have printed. It
// returns the index of the instance that answered.
func Request(ctx context.Context, w *world.World, l *Ledger, name string) (int, error) {
	return request(ctx, w, l, name, "/")
}

// linesPath is the path that lets the processes of an app print all their lines for some
// seconds.
const linesPath = "/lines"

func request(ctx context.Context, w *world.World, l *Ledger, name, path string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Router+path, nil)
	if err != nil {
		return 0, err
	}
	r.Host = name + ".dew.localhost"
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answers %s: %s", name, resp.Status, b)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		return 0, fmt.Errorf("%s answers %q: %w", name, b, err)
	}
	l.Print(name, Printer{a.Instance, "main"}, a.Main)
	l.Print(name, Printer{a.Instance, "sidecar"}, a.Sidecar)
	return strconv.Atoi(a.Index)
}

// mostBehind is the number of lines that a follower can be behind before its app prints
// fewer lines. It is far below the lines that dewd keeps.
const mostBehind = 100_000

// Requests sends requests to an app until ctx is done. They let its processes print, unless
// the follower of the app is too far behind.
func Requests(ctx context.Context, w *world.World, l *Ledger, f *Follower) {
	const every = 400 * time.Millisecond
	for {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
		path := linesPath
		if l.Reported(f.app.Name)-f.Numbered() > mostBehind {
			path = "/"
			l.Count("requests while a follower was behind", 1)
		}
		if _, err := request(ctx, w, l, f.app.Name, path); err != nil {
			l.Count("requests failed", 1) // during a fault some requests fail
		}
		l.Count("requests", 1)
	}
}
