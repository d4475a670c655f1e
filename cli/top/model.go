package top

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/dewrun/dew/api/client"
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/command"
	"github.com/dewrun/dew/cli/console"
)

// backend is what the model needs from the daemon.
type backend interface {
	read(ctx context.Context) (snapshot, error)
	restart(ctx context.Context, a v3.App) error
	why(ctx context.Context, a v3.App, color bool) (string, error)
	follow(ctx context.Context, a v3.App, out *console.Console) error
}

const (
	// retryInterval is the longest time between two requests to a daemon that does not
	// answer.
	retryInterval = time.Second
	noticeTime    = 6 * time.Second
	maxFilter     = 64 // characters
)

// The messages of the model.
type (
	// dataMsg is an answer of the daemon, or an error.
	dataMsg struct {
		snapshot snapshot
		err      error
	}
	// readMsg says that it is time for the next request.
	readMsg struct{}
	// whyMsg is the text of dew why for an app.
	whyMsg struct {
		app  v3.App
		text string
		err  error
	}
	// noticeMsg is a text for the last line of the screen.
	noticeMsg struct {
		text string
		tone tone
	}
)

// model is the state of the screen. Only the event loop of bubbletea uses it.
type model struct {
	ctx      context.Context //nolint:containedctx // the interface of bubbletea has no context
	backend  backend
	interval time.Duration
	now      func() time.Time
	zone     *time.Location
	style    style
	current  atomic.Pointer[context.CancelFunc] // ends the log lines that are shown

	width, height int
	data          snapshot
	totals        totals
	received      time.Time // of data
	lost          error     // the last request failed

	listing  listing
	rows     []row
	columns  []column // for rows and width
	selected int      // index in rows
	first    int      // index of the first visible row

	typing bool    // the filter
	asking *v3.App // the app to restart, if the user confirms
	pane   *pane   // nil: the table
	notice noticeMsg
	until  time.Time // when the notice disappears
}

func newModel(ctx context.Context, b backend, o options, first snapshot) *model {
	m := &model{
		ctx: ctx, backend: b, interval: o.interval, now: time.Now, zone: time.Local,
		width: 80, height: 24, listing: listing{sort: o.sort},
	}
	m.take(first)
	return m
}

// Init schedules the first request; the model has data already.
func (m *model) Init() tea.Cmd {
	if m.style.color {
		return tea.Batch(m.wait(), tea.RequestBackgroundColor)
	}
	return m.wait()
}

// wait schedules the next request.
func (m *model) wait() tea.Cmd {
	interval := m.interval
	if m.lost != nil {
		interval = min(interval, retryInterval)
	}
	return tea.Tick(interval, func(time.Time) tea.Msg { return readMsg{} })
}

// Update handles a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
		m.arrange()
	case tea.BackgroundColorMsg:
		m.style.light = !msg.IsDark()
	case readMsg:
		return m, func() tea.Msg {
			s, err := m.backend.read(m.ctx)
			return dataMsg{s, err}
		}
	case dataMsg:
		if m.lost = msg.err; msg.err == nil {
			m.take(msg.snapshot)
		}
		return m, m.wait()
	case whyMsg:
		m.explained(msg)
	case noticeMsg:
		m.notice, m.until = msg, m.now().Add(noticeTime)
	case tea.PasteMsg:
		if m.typing {
			m.setFilter(m.listing.filter + msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// take shows new data. The selected row stays the same, if it still exists.
func (m *model) take(s snapshot) {
	m.data, m.received = s, m.now()
	m.totals = totalsOf(s.live.Resources)
	m.arrange()
}

// arrange computes the rows and the columns after a change of data, filter, order or
// size.
func (m *model) arrange() {
	var key rowKey
	if m.selected < len(m.rows) {
		key = m.rows[m.selected].key
	}
	m.rows = m.listing.rows(m.data.live.Resources)
	m.columns = layout(m.rows, m.width)
	find := func(k rowKey) bool {
		i := slices.IndexFunc(m.rows, func(r row) bool { return r.key == k })
		if i >= 0 {
			m.selected = i
		}
		return i >= 0
	}
	if !find(key) && key.part > 0 {
		key.part = 0 // hidden now: select its instance
		find(key)
	}
	m.move(0)
}

// move moves the selection, and scrolls so that it is visible.
func (m *model) move(by int) {
	m.selected = max(min(m.selected+by, len(m.rows)-1), 0)
	page := m.page()
	m.first = max(min(m.first, m.selected, len(m.rows)-page), m.selected-page+1, 0)
}

// app is the selected app, or nil.
func (m *model) app() *v3.App {
	if m.selected >= len(m.rows) {
		return nil
	}
	a := m.rows[m.selected].app
	return &v3.App{GUID: a.GUID, Name: a.Name, State: a.State}
}

// key handles a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	if name == "ctrl+z" {
		return tea.Suspend
	}
	m.notice = noticeMsg{}
	switch {
	case m.asking != nil:
		return m.answer(name)
	case m.typing:
		m.typeFilter(k)
		return nil
	case m.pane != nil:
		return m.paneKey(name)
	}
	if m.moveKey(name) {
		return nil
	}
	return m.tableKey(name)
}

// moveKey handles a key that selects a row.
func (m *model) moveKey(name string) bool {
	switch name {
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-m.page())
	case "pgdown":
		m.move(m.page())
	case "home", "g":
		m.move(-len(m.rows))
	case "end", "G":
		m.move(len(m.rows))
	default:
		return false
	}
	return true
}

// tableKey handles the other keys of the table.
func (m *model) tableKey(name string) tea.Cmd {
	switch name {
	case "q":
		return tea.Quit
	case "?":
		m.pane = newPane("Help", helpText, false)
	case "/":
		m.typing = true
	case "esc":
		m.setFilter("")
	case "e":
		m.listing.expanded = !m.listing.expanded
		m.arrange()
	case "s":
		m.listing.sort, m.listing.reverse = (m.listing.sort+1)%len(sortKeys), false
		m.arrange()
	case "S":
		m.listing.reverse = !m.listing.reverse
		m.arrange()
	case "r":
		m.asking = m.app()
	case "w":
		return m.explain()
	case "enter":
		return m.showLogs()
	}
	return nil
}

// typeFilter handles a key while the user types the filter.
func (m *model) typeFilter(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing = false
		m.setFilter("")
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.listing.filter)
		m.setFilter(m.listing.filter[:len(m.listing.filter)-n])
	case "ctrl+u":
		m.setFilter("")
	case "up", "down", "pgup", "pgdown", "home", "end":
		m.moveKey(k.String())
	default:
		m.setFilter(m.listing.filter + k.Text)
	}
}

// setFilter shows only apps whose name contains text.
func (m *model) setFilter(text string) {
	text = strings.ToLower(clean(text))
	if utf8.RuneCountInString(text) > maxFilter {
		return
	}
	m.listing.filter = text
	m.arrange()
}

// answer handles the answer to the question whether to restart an app.
func (m *model) answer(name string) tea.Cmd {
	a := *m.asking
	m.asking = nil
	if name != "y" && name != "Y" {
		m.notice, m.until = noticeMsg{text: "App " + clean(a.Name) + " was not restarted"}, m.now().Add(noticeTime)
		return nil
	}
	return func() tea.Msg {
		if err := m.backend.restart(m.ctx, a); err != nil {
			return noticeMsg{text: "Cannot restart app " + clean(a.Name) + ": " + reason(err), tone: bad}
		}
		return noticeMsg{text: "dewd restarts app " + clean(a.Name), tone: good}
	}
}

// showLogs leaves the screen and follows the logs of the selected app.
func (m *model) showLogs() tea.Cmd {
	a := m.app()
	if a == nil {
		return nil
	}
	f := &follower{
		ctx: m.ctx, color: m.style.color, current: &m.current,
		title: "Logs of app " + clean(a.Name) + ". Press Ctrl-C to return to dew top.",
		show:  func(ctx context.Context, out *console.Console) error { return m.backend.follow(ctx, *a, out) },
	}
	return tea.Exec(f, func(err error) tea.Msg {
		if err != nil {
			return noticeMsg{text: "Cannot show the logs of app " + clean(a.Name) + ": " + reason(err), tone: bad}
		}
		return noticeMsg{}
	})
}

// explain opens a pane with the text of dew why.
func (m *model) explain() tea.Cmd {
	a := m.app()
	if a == nil {
		return nil
	}
	m.pane = newPane(whyTitle(*a), "Reading…", false)
	return func() tea.Msg {
		text, err := m.backend.why(m.ctx, *a, m.style.color)
		return whyMsg{*a, text, err}
	}
}

func whyTitle(a v3.App) string { return "Why: " + clean(a.Name) }

// explained shows the text of dew why, if its pane is still open.
func (m *model) explained(msg whyMsg) {
	if m.pane == nil || m.pane.title != whyTitle(msg.app) {
		return
	}
	if msg.err != nil {
		msg.text = "Cannot explain the state of the app: " + reason(msg.err)
	}
	m.pane = newPane(whyTitle(msg.app), msg.text, m.style.color)
}

// paneKey handles a key while a pane is open.
func (m *model) paneKey(name string) tea.Cmd {
	height := m.paneHeight()
	switch name {
	case "q", "esc", "w", "?", "enter":
		m.pane = nil
	case "up", "k":
		m.pane.scroll(-1, height)
	case "down", "j":
		m.pane.scroll(1, height)
	case "pgup":
		m.pane.scroll(-height, height)
	case "pgdown", "space":
		m.pane.scroll(height, height)
	case "home", "g":
		m.pane.scroll(-len(m.pane.lines), height)
	case "end", "G":
		m.pane.scroll(len(m.pane.lines), height)
	}
	return nil
}

// reason is the message of an error on one line, with its advice.
func reason(err error) string {
	text := strings.TrimSpace(err.Error())
	if advice := command.AdviceOf(err); advice != "" {
		text += ". " + advice
	}
	lines := strings.Fields(text)
	return clean(strings.Join(lines, " "))
}

// unanswered reports whether err means that the daemon did not answer.
func unanswered(err error) bool {
	u := (*client.Unreachable)(nil)
	return errors.As(err, &u) || errors.Is(err, context.DeadlineExceeded)
}
