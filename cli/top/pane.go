package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/dewrun/dew/cli/console"
)

// pane is a text that covers the table and can be scrolled.
type pane struct {
	title string
	text  string
	lines []string // the text in lines of at most width columns
	width int
	top   int // index of the first visible line
}

// newPane is a pane for a text of the daemon. Its colours stay, other control characters
// do not.
func newPane(title, text string, color bool) *pane {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		line = strings.ReplaceAll(line, "\t", "    ")
		lines[i] = string(console.AppendPrintable(nil, []byte(line), color))
	}
	return &pane{title: title, text: strings.Join(lines, "\n")}
}

// wrap breaks the text for a width.
func (p *pane) wrap(width int) {
	if p.width == width {
		return
	}
	p.width = width
	p.lines = strings.Split(ansi.Wrap(p.text, max(width, 1), " "), "\n")
}

// scroll moves the text by a number of lines on a screen of the given height.
func (p *pane) scroll(by, height int) {
	p.top = max(min(p.top+by, len(p.lines)-height), 0)
}

// visible are the lines on a screen of the given height.
func (p *pane) visible(height int) []string {
	p.scroll(0, height)
	return p.lines[p.top:min(p.top+height, len(p.lines))]
}

// helpText explains the keys and the columns.
const helpText = `Keys
  Up, Down, k, j    select a row
  PgUp, PgDn        move by one screen
  Home, End, g, G   go to the first or last row
  e                 show or hide the main process and the sidecars of all instances
  s, S              sort by the next column; reverse the order
  /                 filter by name; Enter keeps the filter, Esc removes it
  Enter             follow the logs of the selected app; Ctrl-C returns
  w                 explain why the selected app crashed or is not running
  r                 restart the selected app, after a question
  ?                 this help
  q, Ctrl-C         quit

Columns
  INSTANCE   process type and index; +2 means 2 sidecars
  CPU        100% is one core
  MEMORY     used memory and its limit, without memory that the kernel can reclaim
  CACHE      memory of files that the kernel can reclaim
  LOG/s      bytes of log lines per second
  REQ/s      requests per second through the router
  RESTARTS   recorded crashes of this instance
  AGE        time in the current state

Memory above 90% of its limit is red. A narrow terminal shows fewer columns.`
