package top

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

var update = flag.Bool("update", false, "write the golden files again")

// screen is the text of the screen.
func screen(m *model) string { return ansi.Strip(m.View().Content) }

// The screens equal the golden files, and no line is wider than the terminal.
func TestScreens(t *testing.T) {
	for _, tt := range []struct {
		name          string
		width, height int
		keys          []string
	}{
		{"table-100x30", 100, 30, []string{"down", "down", "down"}},
		{"expanded-100x30", 100, 30, []string{"e", "down", "down"}},
		{"wide-160x20", 160, 20, nil},
		{"standard-80x24", 80, 24, []string{"s"}},
		{"narrow-60x20", 60, 20, []string{"e"}},
		{"tiny-30x6", 30, 6, nil},
		{"help-100x30", 100, 30, []string{"?"}},
		{"question-60x20", 60, 20, []string{"r"}},
		{"filter-60x20", 60, 20, []string{"/", "c", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := newTestModel(t, tt.width, tt.height)
			press(m, tt.keys...)
			got := screen(m)
			lines := strings.Split(got, "\n")
			if len(lines) != tt.height {
				t.Errorf("%d lines, want %d", len(lines), tt.height)
			}
			for _, line := range lines {
				if n := ansi.StringWidth(line); n > tt.width {
					t.Errorf("%d columns: %q", n, line)
				}
			}
			trimmed := ""
			for _, line := range lines {
				trimmed += strings.TrimRight(line, " ") + "\n"
			}
			golden(t, tt.name+".txt", trimmed)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs (-update writes it again):\n%s", name, diff)
	}
}

// labelsOf are the app and the instance of each row.
func labelsOf(m *model) []string {
	var out []string
	for i := range m.rows {
		text, _ := instanceCell(&m.rows[i], sampleTime)
		out = append(out, m.rows[i].label+" "+text)
	}
	return out
}

func TestSort(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		want []string
	}{
		{nil, []string{"cart web/0 +1", "cart web/1 +1", "catalog web/0", "checkout web/0", "checkout worker/0 +2", "legacy-report -", "search web/0"}},
		{[]string{"S"}, []string{"search web/0", "legacy-report -", "checkout worker/0 +2", "checkout web/0", "catalog web/0", "cart web/1 +1", "cart web/0 +1"}},
		{[]string{"s"}, []string{"search web/0", "cart web/0 +1", "cart web/1 +1", "catalog web/0", "checkout worker/0 +2", "checkout web/0", "legacy-report -"}},
		{[]string{"s", "S"}, []string{"checkout web/0", "cart web/1 +1", "catalog web/0", "checkout worker/0 +2", "cart web/0 +1", "search web/0", "legacy-report -"}},
		{[]string{"s", "s"}, []string{"search web/0", "catalog web/0", "cart web/0 +1", "cart web/1 +1", "checkout worker/0 +2", "checkout web/0", "legacy-report -"}},
		{[]string{"s", "s", "s", "s"}, []string{"catalog web/0", "cart web/0 +1", "cart web/1 +1", "checkout worker/0 +2", "search web/0", "checkout web/0", "legacy-report -"}},
		{[]string{"s", "s", "s", "s", "s"}, []string{"checkout web/0", "catalog web/0", "cart web/0 +1", "cart web/1 +1", "checkout worker/0 +2", "search web/0", "legacy-report -"}},
	} {
		m, _ := newTestModel(t, 100, 30)
		press(m, tt.keys...)
		if diff := cmp.Diff(tt.want, labelsOf(m)); diff != "" {
			t.Errorf("%v:\n%s", tt.keys, diff)
		}
	}
	m, _ := newTestModel(t, 100, 30)
	for range sortKeys {
		press(m, "s")
	}
	if m.listing.sort != 0 {
		t.Errorf("after all columns the order is %s", sortKeys[m.listing.sort].name)
	}
}

func TestFilter(t *testing.T) {
	m, _ := newTestModel(t, 100, 30)
	press(m, "/", "C", "A", "R", "x", "backspace")
	want := []string{"cart web/0 +1", "cart web/1 +1"}
	if diff := cmp.Diff(want, labelsOf(m)); diff != "" {
		t.Error(diff)
	}
	if m.View().Cursor == nil {
		t.Error("no cursor while typing")
	}
	press(m, "q", "esc")
	if len(m.rows) != 7 || m.typing {
		t.Errorf("Esc leaves %d rows, typing %v", len(m.rows), m.typing)
	}
	press(m, "/", "z", "z", "enter")
	if got := screen(m); !strings.Contains(got, "No app matches zz. Press Esc to remove the filter") {
		t.Errorf("no explanation:\n%s", got)
	}
	if cmd := press(m, "enter"); cmd != nil {
		t.Error("Enter without a row does something")
	}
	press(m, "r", "w", "esc")
	if len(m.rows) != 7 || m.asking != nil || m.pane != nil {
		t.Errorf("Esc leaves %d rows", len(m.rows))
	}
	press(m, "/")
	m.Update(tea.PasteMsg{Content: "cat\x1b[2J\n"})
	if got := m.listing.filter; strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("filter %q", got)
	}
	press(m, strings.Split(strings.Repeat("a", 2*maxFilter), "")...)
	if n := len(m.listing.filter); n > maxFilter {
		t.Errorf("the filter has %d characters", n)
	}
}

// The selection stays on the same row when the data or the order changes.
func TestSelection(t *testing.T) {
	m, _ := newTestModel(t, 100, 30)
	press(m, "e", "down", "down", "down") // cart web/1
	selected := m.rows[m.selected].key
	press(m, "s", "S")
	if got := m.rows[m.selected].key; got != selected {
		t.Errorf("after sorting %v, want %v", got, selected)
	}
	press(m, "down") // its main process
	press(m, "e")
	if got := m.rows[m.selected].key; got != selected {
		t.Errorf("after hiding the processes %v, want %v", got, selected)
	}
	press(m, "end", "end")
	if m.selected != len(m.rows)-1 {
		t.Errorf("End selects %d", m.selected)
	}
	m.Update(dataMsg{snapshot: snapshot{live: v3.LiveApps{Time: sampleTime, Resources: sample().live.Resources[:1]}}})
	if m.selected != 1 {
		t.Errorf("after the row is gone, %d is selected", m.selected)
	}
	m.Update(dataMsg{snapshot: snapshot{live: v3.LiveApps{Time: sampleTime}}})
	if got := screen(m); !strings.Contains(got, "There are no apps. To create one: dew push") {
		t.Errorf("no explanation:\n%s", got)
	}
	press(m, "up", "pgdown", "home", "end", "enter", "w", "r", "y")
}

// The selected row is always visible.
func TestScroll(t *testing.T) {
	m, _ := newTestModel(t, 80, 10)
	m.Update(dataMsg{snapshot: many(40)})
	for _, k := range []string{"pgdown", "down", "pgdown", "end", "up", "pgup", "home", "down", "G", "g", "j", "k"} {
		press(m, k)
		if m.selected < m.first || m.selected >= m.first+m.page() {
			t.Errorf("%s: row %d is selected, the first visible one is %d", k, m.selected, m.first)
		}
		if want := fmt.Sprintf("row %d of 40", m.selected+1); !strings.Contains(screen(m), want) {
			t.Errorf("%s: %q is missing", k, want)
		}
	}
	press(m, "end")
	m.Update(tea.WindowSizeMsg{Width: 40, Height: 60})
	if m.first != 0 {
		t.Errorf("on a higher screen the first visible row is %d", m.first)
	}
	m.Update(tea.WindowSizeMsg{Width: 1, Height: 1})
	_ = m.View()
}

func TestLostConnection(t *testing.T) {
	m, b := newTestModel(t, 100, 30)
	b.err = &client.Unreachable{Address: "/run/dew/dew.sock", Err: os.ErrNotExist}
	cmd := readAgain(t, m)
	m.now = func() time.Time { return sampleTime.Add(75 * time.Second) }
	got := screen(m)
	for _, want := range []string{"dewd does not answer. Last data: 10:20:30 (1m15s ago). dew tries again", "catalog"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%s", want, got)
		}
	}
	if cmd == nil {
		t.Fatal("dew does not try again")
	}
	b.err = context.DeadlineExceeded
	readAgain(t, m)
	if got := screen(m); !strings.Contains(got, "dewd does not answer") {
		t.Errorf("a timeout:\n%s", got)
	}
	b.err = errRefused
	readAgain(t, m)
	if got := screen(m); strings.Contains(got, "does not answer") || !strings.Contains(got, "you are not authorized") {
		t.Errorf("an answer is an error:\n%s", got)
	}
	b.err = nil
	readAgain(t, m)
	if got := screen(m); strings.Contains(got, "tries again") || !strings.Contains(got, "CPU ") {
		t.Errorf("not recovered:\n%s", got)
	}
}

// readAgain lets the model send its next request, and returns the command after it.
func readAgain(t *testing.T, m *model) tea.Cmd {
	t.Helper()
	_, cmd := m.Update(readMsg{})
	if cmd == nil {
		t.Fatal("there is no request")
	}
	_, cmd = m.Update(cmd())
	return cmd
}

func TestRestart(t *testing.T) {
	m, b := newTestModel(t, 100, 30)
	press(m, "down", "down", "r")
	if got := screen(m); !strings.Contains(got, "Restart app catalog? [y/n]") {
		t.Errorf("no question:\n%s", got)
	}
	for _, no := range []string{"n", "esc", "enter", "q"} {
		m.asking = m.app()
		if cmd := press(m, no); cmd != nil {
			t.Errorf("%s restarts", no)
		}
	}
	if got := screen(m); !strings.Contains(got, "App catalog was not restarted") {
		t.Errorf("no notice:\n%s", got)
	}
	press(m, "r")
	m.Update(dataMsg{snapshot: snapshot{live: v3.LiveApps{Time: sampleTime}}}) // another row is selected now
	cmd := press(m, "y")
	m.Update(cmd())
	if diff := cmp.Diff([]string{"guid-catalog"}, b.restarted); diff != "" {
		t.Error(diff)
	}
	if got := screen(m); !strings.Contains(got, "dewd restarts app catalog") {
		t.Errorf("no notice:\n%s", got)
	}
	m.Update(dataMsg{snapshot: sample()})
	b.err = errRefused
	cmd = press(m, "r", "Y")
	m.Update(cmd())
	if got := screen(m); !strings.Contains(got, "Cannot restart app cart: you are not authorized") {
		t.Errorf("no error:\n%s", got)
	}
	m.now = func() time.Time { return sampleTime.Add(time.Minute) }
	if got := screen(m); strings.Contains(got, "Cannot restart") {
		t.Error("the notice stays for ever")
	}
}

func TestWhy(t *testing.T) {
	m, b := newTestModel(t, 60, 20)
	m.style.color = true
	cmd := press(m, "w")
	if got := screen(m); !strings.Contains(got, "Why: cart") || !strings.Contains(got, "Reading…") {
		t.Errorf("no pane:\n%s", got)
	}
	m.Update(cmd())
	got := m.View().Content
	for _, want := range []string{"cart is running", "\x1b[31mIt crashed", "^[]0;title^G", "lines 1 to 18 of 62"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%q", want, got)
		}
	}
	press(m, "pgdown", "down", "up", "down")
	if got := screen(m); !strings.Contains(got, "lines 20 to 37 of 62") || !strings.Contains(got, "line 17\n") {
		t.Errorf("not scrolled:\n%s", got)
	}
	press(m, "end", "pgdown")
	if got := screen(m); !strings.Contains(got, "lines 45 to 62 of 62") {
		t.Errorf("not at the end:\n%s", got)
	}
	press(m, "home", "esc")
	m.Update(cmd()) // an answer after the pane was closed
	if m.pane != nil {
		t.Error("the pane opens again")
	}
	b.err = errRefused
	m.Update(press(m, "w")())
	if got := screen(m); !strings.Contains(got, "Cannot explain the state of the app: you are not authorized") {
		t.Errorf("no error:\n%s", got)
	}
}

// Enter follows the logs of the selected app until it is interrupted.
func TestLogs(t *testing.T) {
	m, b := newTestModel(t, 60, 20)
	if cmd := press(m, "down", "down", "enter"); cmd == nil {
		t.Fatal("Enter does nothing")
	}
	var out bytes.Buffer
	f := &follower{
		ctx: t.Context(), current: &m.current, title: "Logs of app catalog.",
		show: func(ctx context.Context, c *console.Console) error {
			(*m.current.Load())() // as the signal of Ctrl-C does
			return b.follow(ctx, *m.app(), c)
		},
	}
	f.SetStdin(nil)
	f.SetStdout(&out)
	f.SetStderr(&out)
	if err := f.Run(); err != nil {
		t.Error(err)
	}
	if got, want := out.String(), "Logs of app catalog.\na line of catalog\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f.show = func(context.Context, *console.Console) error { return nil }
	if err := f.Run(); !errors.Is(err, errLogsEnded) {
		t.Errorf("the end of the logs is %v", err)
	}
	if m.current.Load() != nil {
		t.Error("the next Ctrl-C does not end dew top")
	}
}

func TestQuit(t *testing.T) {
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"/", "ctrl+c"}, {"r", "ctrl+c"}, {"?", "ctrl+c"}} {
		m, _ := newTestModel(t, 80, 24)
		cmd := press(m, keys...)
		if cmd == nil || reflect.TypeOf(cmd()) != reflect.TypeFor[tea.QuitMsg]() {
			t.Errorf("%v does not quit", keys)
		}
	}
}

// Control characters in names and details do not reach the terminal.
func TestHostileTexts(t *testing.T) {
	const hostile = "a\x1b]0;x\x07\x9b31m\r\n\t\u202eb\x00\u2028\u009b2J"
	s := sample()
	for i := range s.live.Resources {
		a := &s.live.Resources[i]
		a.Name += hostile
		a.Space = v3.LiveSpace{GUID: hostile + a.Name, Name: hostile, OrgGUID: a.Name, OrgName: hostile}
		a.Routes = []string{hostile}
		a.LastCrash = &v3.LiveCrash{Type: "web", Sentence: hostile}
		for j := range a.Instances {
			in := &a.Instances[j]
			in.Details = hostile
			for k := range in.Processes {
				in.Processes[k].Sidecar += hostile
			}
			if i > 0 {
				in.Type, in.State = hostile, "S"+hostile
			}
		}
	}
	m, b := newTestModel(t, 200, 40)
	m.Update(dataMsg{snapshot: s})
	check := func(what string) {
		t.Helper()
		got := strings.NewReplacer(console.Bold, "", console.NoColour, "", reverse, "").Replace(m.View().Content)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\x07\r\t\x00\u202e\u2028\u009b") {
			t.Errorf("%s: %q", what, got)
		}
	}
	check("table")
	press(m, "e")
	for range m.rows {
		check("row")
		press(m, "down")
	}
	press(m, "r")
	check("question")
	b.err = fmt.Errorf("no: %s", hostile)
	m.Update(press(m, "y")())
	check("notice")
	m.Update(press(m, "w")())
	check("why")
	press(m, "esc")
	readAgain(t, m)
	check("lost")

	var out bytes.Buffer
	if err := printOnce(&console.Console{Out: &out}, s, listing{expanded: true}); err != nil {
		t.Error(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\r\t\x00\u202e\u009b") {
		t.Errorf("table: %q", out.String())
	}
}

// An instance of a stopped app is not a problem; one of a started app that is down is.
func TestDown(t *testing.T) {
	in := v3.LiveInstance{Type: "web", State: v3.StateDown}
	for state, want := range map[string]tone{v3.AppStopped: faint, v3.AppStarted: bad} {
		r := row{app: &v3.LiveApp{State: state}, instance: &in}
		if text, got := stateCell(&r, sampleTime); got != want {
			t.Errorf("%s: %s has tone %d, want %d", state, text, got, want)
		}
	}
}

func TestColours(t *testing.T) {
	m, _ := newTestModel(t, 100, 30)
	if got := m.View().Content; strings.Contains(got, "\x1b[3") || strings.Contains(got, dimmed) {
		t.Errorf("colours without --color: %q", got)
	}
	m.style.color = true
	got := m.View().Content
	for _, want := range []string{console.Green + "running", console.Red + "crashed", console.Red + "250M/256M", console.Yellow + "not ready", dimmed + "stopped", reverse + "cart"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing: %q", want, got)
		}
	}
	m.style.light = true
	if got := m.View().Content; strings.Contains(got, console.Yellow) || !strings.Contains(got, darkGold+"not ready") {
		t.Errorf("yellow on a light background: %q", got)
	}
}

// many has apps with an instance of a main process and two sidecars.
func many(n int) snapshot {
	s := sample()
	s.live.Resources = nil
	for i := range n {
		name := fmt.Sprintf("app-%03d", i)
		s.live.Resources = append(s.live.Resources, v3.LiveApp{
			GUID: name, Name: name, State: v3.AppStarted, Space: v3.LiveSpace{GUID: "s", Name: "dev", OrgGUID: "o", OrgName: "local"},
			Instances: []v3.LiveInstance{instance("web", 0, int64(i), 128, part("config-server", 32), part("agent", 16))},
		})
	}
	return s
}

// BenchmarkUpdate is one answer of the daemon and one drawing of the screen, with 100 apps
// of 3 processes.
func BenchmarkUpdate(b *testing.B) {
	for _, expanded := range []bool{false, true} {
		b.Run(fmt.Sprintf("expanded=%v", expanded), func(b *testing.B) {
			m, _ := newTestModel(b, 120, 40)
			m.style.color = true
			m.listing.expanded = expanded
			m.listing.sort = sortIndex("memory")
			msg := dataMsg{snapshot: many(100)}
			b.ReportAllocs()
			for b.Loop() {
				m.Update(msg)
				_ = m.View()
			}
		})
	}
}
