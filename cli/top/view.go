package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/dewrun/dew/cli/console"
)

// style says how the screen shows tones.
type style struct {
	color bool
	light bool // the terminal has a light background
}

const (
	reverse  = "\x1b[7m"
	dimmed   = "\x1b[2m"
	darkGold = "\x1b[38;5;130m" // yellow is hard to read on white
)

// code is the escape sequence of a tone; empty: none.
func (s style) code(t tone) string {
	if !s.color {
		return ""
	}
	switch t {
	case good:
		return console.Green
	case warning:
		if s.light {
			return darkGold
		}
		return console.Yellow
	case bad:
		return console.Red
	case faint:
		return dimmed
	}
	return ""
}

// append appends text in a tone.
func (s style) append(b []byte, t tone, text string) []byte {
	code := s.code(t)
	if code == "" || text == "" {
		return append(b, text...)
	}
	return append(append(append(b, code...), text...), console.NoColour...)
}

// headLines and footLines are the number of lines above and below the rows.
func (m *model) headLines() int {
	if m.height < 8 {
		return 2
	}
	return 3
}

func (m *model) footLines() int {
	if m.height < 8 {
		return 1
	}
	return 2
}

// page is the number of rows on the screen.
func (m *model) page() int { return max(m.height-m.headLines()-m.footLines(), 1) }

// paneHeight is the number of lines of a pane.
func (m *model) paneHeight() int { return max(m.height-2, 1) }

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(string(m.draw()))
	v.AltScreen = true
	v.WindowTitle = "dew top"
	if m.typing {
		v.Cursor = tea.NewCursor(min(textWidth(filterPrompt+m.listing.filter), m.width-1), m.height-1)
	}
	return v
}

// draw draws all lines of the screen. Only visible rows are formatted.
func (m *model) draw() []byte {
	b := make([]byte, 0, 2*m.width*m.height)
	if m.pane != nil {
		return m.drawPane(b)
	}
	b = m.drawHead(b)
	end := min(m.first+m.page(), len(m.rows))
	for i := m.first; i < end; i++ {
		b = append(m.drawRow(b, &m.rows[i], i == m.selected), '\n')
	}
	for i := end - m.first; i < m.page(); i++ {
		if i == 0 {
			b = append(b, fit(m.emptyText(), m.width)...)
		}
		b = append(b, '\n')
	}
	if m.footLines() > 1 {
		b = append(m.drawDetails(b), '\n')
	}
	return m.drawFoot(b)
}

// emptyText says why there are no rows.
func (m *model) emptyText() string {
	if m.listing.filter != "" {
		return "No app matches " + m.listing.filter + ". Press Esc to remove the filter"
	}
	return "There are no apps. To create one: dew push"
}

// drawHead draws the totals and the titles of the columns.
func (m *model) drawHead(b []byte) []byte {
	t := m.totals
	left := fmt.Sprintf("%s, %d of %s running", plural(t.apps, "app"), t.running, plural(t.wanted, "instance"))
	crashed := ""
	if t.crashed > 0 {
		left += ", "
		crashed = fmt.Sprintf("%d crashed", t.crashed)
	}
	right := m.data.live.Time.In(m.zone).Format(time.TimeOnly)
	if n := len(m.rows); n > m.page() {
		right = fmt.Sprintf("row %d of %d  ", m.selected+1, n) + right
	}
	b = append(m.spread(b, left, crashed, right), '\n')
	if m.headLines() > 2 {
		b = append(m.drawUsage(b), '\n')
	}
	return append(m.drawTitles(b), '\n')
}

// spread writes the name of the command, a text, an alert, and a text at the right edge
// if there is space.
func (m *model) spread(b []byte, left, alert, right string) []byte {
	const name = "dew top"
	left = fit(left, max(m.width-len(name)-gap, 0))
	used := len(name) + gap + textWidth(left)
	b = append(append(append(b, console.Bold...), name...), console.NoColour...)
	b = append(append(b, "  "...), left...)
	alert = fit(alert, max(m.width-used, 0))
	b = m.style.append(b, bad, alert)
	used += textWidth(alert)
	if free := m.width - used - len(right); free >= gap {
		b = append(b, strings.Repeat(" ", free)...)
		b = m.style.append(b, faint, right)
	}
	return b
}

// drawUsage draws the usage of all apps, or that the daemon does not answer.
func (m *model) drawUsage(b []byte) []byte {
	if m.lost != nil {
		return append(append(append(b, reverse+m.style.code(bad)...), fit(m.lostText(), m.width)...), console.NoColour...)
	}
	t, machine := m.totals, m.data.machine
	text := "CPU " + cores(t.cpu)
	if machine.cores > 0 {
		text += " of " + plural(machine.cores, "core")
	} else {
		text += " cores"
	}
	parts := []string{text, "memory " + size(t.mem) + ", limits " + size(t.limits)}
	if machine.total > 0 {
		parts = append(parts, "machine "+size(machine.used)+" of "+size(machine.total)+" used")
	}
	return append(b, m.join(parts, "   ")...)
}

// lostText says since when there is no new data.
func (m *model) lostText() string {
	since := fmt.Sprintf("Last data: %s (%s ago). dew tries again",
		m.received.In(m.zone).Format(time.TimeOnly), age(m.now().Sub(m.received)))
	if unanswered(m.lost) {
		return " dewd does not answer. " + since + " "
	}
	return " " + reason(m.lost) + ". " + since + " "
}

// drawTitles draws the titles of the columns, with a mark at the sort column.
func (m *model) drawTitles(b []byte) []byte {
	b = append(b, console.Bold...)
	for i, c := range m.columns {
		title := c.title
		switch sorted := c.sort == sortKeys[m.listing.sort].name; {
		case sorted && c.left:
			title += m.sortMark(c)
		case sorted:
			title = m.sortMark(c) + title
		}
		b = appendCell(b, fit(title, c.width), c, i == len(m.columns)-1)
	}
	return append(b, console.NoColour...)
}

// sortMark is an arrow for the direction of the order: ascending or descending.
func (m *model) sortMark(c column) string {
	if (c.sort == "name") != m.listing.reverse {
		return "▲"
	}
	return "▼"
}

// appendCell appends a text in the width of its column, and the gap after it.
func appendCell(b []byte, text string, c column, last bool) []byte {
	pad := max(c.width-textWidth(text), 0)
	if !c.left {
		b = appendSpaces(b, pad)
		pad = 0
	}
	b = append(b, text...)
	if !last {
		b = appendSpaces(b, pad+gap)
	}
	return b
}

func appendSpaces(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

// drawRow draws one row. The selected row is reversed, without other colours.
func (m *model) drawRow(b []byte, r *row, selected bool) []byte {
	now := m.data.live.Time
	if selected {
		b = append(b, reverse...)
	}
	used := 0
	for i := range m.columns {
		c := &m.columns[i]
		text, t := c.cell(r, now)
		if c.title == titleApp {
			text = fitEnd(text, c.width)
		} else {
			text = fit(text, c.width)
		}
		w := textWidth(text)
		pad := max(c.width-w, 0)
		if !c.left {
			b = appendSpaces(b, pad)
		}
		switch {
		case selected:
			b = append(b, text...)
		case m.lost != nil:
			b = m.style.append(b, faint, text)
		default:
			b = m.style.append(b, t, text)
		}
		if c.left {
			b = appendSpaces(b, pad)
		}
		used += c.width
		if i < len(m.columns)-1 {
			b = appendSpaces(b, gap)
			used += gap
		}
	}
	if selected {
		b = append(appendSpaces(b, m.width-used), console.NoColour...)
	}
	return b
}

// drawDetails draws the facts about the selected row that have no column.
func (m *model) drawDetails(b []byte) []byte {
	if m.selected >= len(m.rows) {
		return b
	}
	r := &m.rows[m.selected]
	if r.part != nil {
		name := fmt.Sprintf("%s %s/%d %s: ", r.label, clean(r.instance.Type), r.instance.Index, processName(r.part))
		return append(b, fit(name+partDetails(r.part), m.width)...)
	}
	text, t := r.details(m.data.live.Time), warning
	if crash := r.app.LastCrash; text == "" && crash != nil {
		ago := age(m.data.live.Time.Sub(crash.Time))
		text = fmt.Sprintf("last crash %s ago, %s/%d: %s", ago, clean(crash.Type), crash.Index, clean(crash.Sentence))
	}
	if text == "" && len(r.app.Routes) > 0 {
		text, t = clean(strings.Join(r.app.Routes, ", ")), faint
	}
	return m.style.append(b, t, fit(text, m.width))
}

const filterPrompt = "Filter: "

// drawFoot draws the last line: a question, the filter, a notice or the keys.
func (m *model) drawFoot(b []byte) []byte {
	switch {
	case m.asking != nil:
		question := "Restart app " + clean(m.asking.Name) + "? [y/n]"
		return append(append(append(b, reverse...), fit(question, m.width)...), console.NoColour...)
	case m.typing:
		return append(b, fit(filterPrompt+m.listing.filter, m.width)...)
	case m.notice.text != "" && m.now().Before(m.until):
		return m.style.append(b, m.notice.tone, fit(m.notice.text, m.width))
	}
	keys := []string{"q quit", "? help", "Enter logs", "w why", "r restart", "s sort", "/ filter", "e processes"}
	if m.listing.filter != "" {
		keys = append([]string{"Filter: " + m.listing.filter + " (Esc removes it)"}, keys...)
	}
	return m.style.append(b, faint, m.join(keys, "  "))
}

// join joins as many texts as fit on a line.
func (m *model) join(texts []string, between string) string {
	line := fit(texts[0], m.width)
	for _, text := range texts[1:] {
		if textWidth(line)+len(between)+textWidth(text) > m.width {
			break
		}
		line += between + text
	}
	return line
}

// drawPane draws a text that covers the table.
func (m *model) drawPane(b []byte) []byte {
	p, height := m.pane, m.paneHeight()
	p.wrap(m.width)
	lines := p.visible(height)
	position := ""
	if len(p.lines) > height {
		position = fmt.Sprintf("lines %d to %d of %d", p.top+1, p.top+len(lines), len(p.lines))
	}
	b = append(m.spread(b, p.title, "", position), '\n')
	for _, line := range lines {
		b = append(append(b, line...), '\n')
	}
	for range height - len(lines) {
		b = append(b, '\n')
	}
	return m.style.append(b, faint, fit("Esc back  Up, Down, PgUp, PgDn scroll", m.width))
}
