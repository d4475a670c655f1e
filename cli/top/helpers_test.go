package top

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

const mib = 1 << 20

// sampleTime is the time of the sample.
var sampleTime = time.Date(2026, 3, 4, 10, 20, 30, 0, time.UTC)

// part is a process with half of the limit in use.
func part(sidecar string, limit int64) v3.LivePart {
	return v3.LivePart{Sidecar: sidecar, CPU: 0.05, Mem: limit * mib / 2, MemQuota: limit * mib, Cache: 3 * mib, Peak: limit * mib * 3 / 4, PeakEver: limit * mib * 3 / 4, PIDs: 4}
}

// instance is a running instance.
func instance(process string, index int, mem, limit int64, parts ...v3.LivePart) v3.LiveInstance {
	return v3.LiveInstance{
		Type: process, Index: index, State: v3.StateRunning, Ready: true, Since: sampleTime.Add(-2 * time.Hour), Mem: mem * mib, MemQuota: limit * mib,
		CPU: 0.1, LogRate: 2048, Requests: 12.5, Processes: append([]v3.LivePart{{CPU: 0.05, Mem: mem * mib / 2, Cache: 7 * mib, Peak: mem * mib, PIDs: 9}}, parts...),
	}
}

// sample has an app in every state.
func sample() snapshot {
	dev := v3.LiveSpace{GUID: "s1", Name: "dev", OrgGUID: "o1", OrgName: "local"}
	app := func(name string, instances ...v3.LiveInstance) v3.LiveApp {
		return v3.LiveApp{GUID: "guid-" + name, Name: name, State: v3.AppStarted, Space: dev, Routes: []string{"http://" + name + ".dew.localhost"}, Instances: instances}
	}
	cart := app("cart", instance("web", 0, 100, 128, part("config-server", 32)), instance("web", 1, 90, 128, part("config-server", 32)))
	cart.Instances[0].CPU = 0.25
	catalog := app("catalog", instance("web", 0, 250, 256))
	catalog.Instances[0].Restarts, catalog.Instances[0].Requests = 3, 1200
	crashed := v3.LiveInstance{Type: "web", State: v3.StateCrashed, Since: sampleTime.Add(-4 * time.Second), Restarts: 7, MemQuota: 256 * mib, NextStart: sampleTime.Add(9 * time.Second)}
	checkout := app("checkout", crashed, instance("worker", 0, 40, 64, part("agent", 16), part("metrics-exporter", 16)))
	checkout.LastCrash = &v3.LiveCrash{Time: sampleTime.Add(-4 * time.Second), Type: "web", Class: "exit", Sentence: "web exited with status 1 after 3s"}
	stopped := app("legacy-report")
	stopped.State = v3.AppStopped
	starting := instance("web", 0, 410, 1024)
	starting.Ready, starting.CPU = false, 1.42
	return snapshot{
		live:    v3.LiveApps{Time: sampleTime, Resources: []v3.LiveApp{cart, catalog, checkout, stopped, app("search", starting)}},
		machine: machine{used: 3 << 30, total: 8 << 30, cores: 4},
	}
}

// fakeBackend answers from memory and records the actions.
type fakeBackend struct {
	mu        sync.Mutex
	snapshot  snapshot
	err       error
	restarted []string
	logs      []string
}

func (f *fakeBackend) read(context.Context) (snapshot, error) { return f.snapshot, f.err }

func (f *fakeBackend) restart(_ context.Context, a v3.App) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restarted = append(f.restarted, a.GUID)
	return f.err
}

func (f *fakeBackend) why(_ context.Context, a v3.App, _ bool) (string, error) {
	if f.err != nil {
		return "", f.err
	}
	text := a.Name + " is running: 1 of 1 instances\n\x1b[31mIt crashed\x1b[0m \x1b]0;title\x07\n"
	for i := range 60 {
		text += fmt.Sprintf("line %d\n", i)
	}
	return text, nil
}

func (f *fakeBackend) follow(ctx context.Context, a v3.App, out *console.Console) error {
	f.logs = append(f.logs, a.GUID)
	fmt.Fprintln(out.Out, "a line of", a.Name)
	<-ctx.Done()
	return nil
}

var errRefused = errors.New("you are not authorized to perform the requested action")

// newTestModel is a model with the sample and a fixed time.
func newTestModel(t testing.TB, width, height int) (*model, *fakeBackend) {
	t.Helper()
	b := &fakeBackend{snapshot: sample()}
	m := newModel(t.Context(), b, options{interval: time.Second}, b.snapshot)
	m.now, m.zone = func() time.Time { return sampleTime }, time.UTC
	m.received = sampleTime
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m, b
}

// press sends keys to the model, and returns the command of the last one.
func press(m *model, keys ...string) tea.Cmd {
	var cmd tea.Cmd
	for _, k := range keys {
		_, cmd = m.Update(key(k))
	}
	return cmd
}

// key is the message of a key: its name, or the character that it types.
func key(name string) tea.KeyPressMsg {
	special := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace,
	}
	if code, ok := special[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	if name == "ctrl+c" {
		return tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}
