package top

import (
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// tone says how important a cell is. The style of the screen turns it into a colour.
type tone int

const (
	plain tone = iota
	good
	warning
	bad
	faint
)

// column is a column of the table.
type column struct {
	title string
	sort  string // value of --sort; empty: not sortable
	width int
	left  bool // aligned left
	// drop orders the columns that a narrow terminal leaves out: the highest number is
	// left out first. Columns with 0 always stay.
	drop int
	cell func(r *row, now time.Time) (string, tone)
}

// The names of columns that get the width of their content.
const (
	titleApp      = "APP"
	titleInstance = "INSTANCE"
	titleMemory   = "MEMORY"
	titleDetails  = "DETAILS"
)

// columns are all columns in their order.
var columns = []column{
	{title: titleApp, sort: "name", width: 16, left: true, cell: appCell},
	{title: titleInstance, width: 16, left: true, cell: instanceCell},
	{title: "STATE", width: 9, left: true, drop: 1, cell: stateCell},
	{title: "CPU", sort: "cpu", width: 5, drop: 3, cell: cpuCell},
	{title: titleMemory, sort: "memory", width: 11, drop: 2, cell: memoryCell},
	{title: titleBar, width: 8, left: true, drop: 7, cell: barCell},
	{title: "CACHE", width: 5, drop: 9, cell: cacheCell},
	{title: "LOG/s", sort: "logs", width: 5, drop: 8, cell: logCell},
	{title: "REQ/s", sort: "requests", width: 5, drop: 6, cell: requestsCell},
	{title: "RESTARTS", sort: "restarts", width: 8, drop: 4, cell: restartsCell},
	{title: "AGE", width: 6, drop: 5, cell: ageCell},
	{title: titleDetails, width: 16, left: true, drop: 10, cell: detailsCell},
}

const (
	titleBar   = "" // beside the memory
	gap        = 2  // columns between cells
	maxLabel   = 48
	maxProcess = 24
)

// layout chooses the columns that fit into a width. The columns of the names get the width
// of their content, as far as there is space, and the details get the rest.
func layout(rows []row, width int) []column {
	names := map[string]int{titleApp: len(titleApp) + 1, titleInstance: len(titleInstance), titleMemory: len(titleMemory) + 1}
	for i := range rows {
		names[titleApp] = max(names[titleApp], min(textWidth(rows[i].label), maxLabel))
		text, _ := instanceCell(&rows[i], time.Time{})
		names[titleInstance] = max(names[titleInstance], min(textWidth(text), maxProcess))
		names[titleMemory] = max(names[titleMemory], memoryWidth(&rows[i]))
	}
	chosen := make([]column, len(columns))
	copy(chosen, columns)
	for i := range chosen {
		if n, ok := names[chosen[i].title]; ok {
			chosen[i].width = min(n, chosen[i].width) // the least
		}
	}
	for total(chosen) > width {
		worst := 0
		for i := range chosen {
			if chosen[i].drop > chosen[worst].drop {
				worst = i
			}
		}
		if chosen[worst].drop == 0 {
			break
		}
		chosen = append(chosen[:worst], chosen[worst+1:]...)
	}
	spare := max(width-total(chosen), 0)
	for i := range chosen {
		if n, ok := names[chosen[i].title]; ok {
			more := min(max(n-chosen[i].width, 0), spare)
			chosen[i].width += more
			spare -= more
		}
	}
	if last := &chosen[len(chosen)-1]; last.title == titleDetails {
		last.width += spare
	}
	return chosen
}

func total(chosen []column) int {
	n := gap * (len(chosen) - 1)
	for _, c := range chosen {
		n += c.width
	}
	return n
}

func appCell(r *row, _ time.Time) (string, tone) {
	switch {
	case r.part != nil:
		return "", plain
	case r.instance == nil:
		return r.label, faint
	}
	return r.label, plain
}

// instanceCell is the type and index, with the number of sidecars, or the name of a
// process below its instance.
func instanceCell(r *row, _ time.Time) (string, tone) {
	switch {
	case r.instance == nil:
		return "-", faint
	case r.part != nil:
		branch := "├ "
		if r.last {
			branch = "└ "
		}
		return branch + processName(r.part), plain
	}
	text := clean(r.instance.Type) + "/" + strconv.Itoa(r.instance.Index)
	if n := len(r.instance.Processes); n > 1 {
		text += " +" + strconv.Itoa(n-1)
	}
	return text, plain
}

// processName is the name of a sidecar, or main.
func processName(p *v3.LivePart) string {
	if p.Sidecar == "" {
		return "main"
	}
	return clean(p.Sidecar)
}

func stateCell(r *row, _ time.Time) (string, tone) {
	switch {
	case r.part != nil:
		return "", plain
	case r.instance == nil && r.app.State == v3.AppStarted:
		return "none", warning
	case r.instance == nil, r.app.State != v3.AppStarted && r.instance.State == v3.StateDown:
		return "stopped", faint
	}
	switch in := r.instance; in.State {
	case v3.StateRunning:
		if !in.Ready {
			return "not ready", warning
		}
		return "running", good
	case v3.StateCrashed:
		if in.GivenUp {
			return "given up", bad
		}
		return "crashed", bad
	case v3.StateDown:
		return "down", bad
	default:
		return strings.ToLower(clean(in.State)), warning
	}
}

// running reports whether a row has usage.
func (r *row) running() bool {
	return r.part != nil || r.instance != nil && (r.instance.State == v3.StateRunning || r.instance.Mem > 0)
}

func cpuCell(r *row, _ time.Time) (string, tone) {
	switch {
	case !r.running():
		return "-", faint
	case r.part != nil:
		return percent(r.part.CPU), plain
	}
	return percent(r.instance.CPU), plain
}

// memory is the memory of a row and its limit. The limit is 0 for a process without a
// limit of its own.
func (r *row) memory() (used, limit int64) {
	if r.part != nil {
		return r.part.Mem, r.part.MemQuota
	}
	return r.instance.Mem, r.instance.MemQuota
}

// nearLimit reports whether the memory is above 90 % of its limit.
func nearLimit(used, limit int64) bool { return limit > 0 && used > limit/10*9 }

func memoryCell(r *row, _ time.Time) (string, tone) {
	if !r.running() {
		return "-", faint
	}
	used, limit := r.memory()
	switch {
	case limit <= 0:
		return size(used), plain
	case nearLimit(used, limit):
		return size(used) + "/" + size(limit), bad
	}
	return size(used) + "/" + size(limit), plain
}

// memoryWidth is the width of the memory of a row. It changes only with the limit, so that
// the columns keep their places.
func memoryWidth(r *row) int {
	const used = 4 // 1023M is rare
	if !r.running() {
		return 0
	}
	text, _ := memoryCell(r, time.Time{})
	if _, limit := r.memory(); limit > 0 {
		return max(textWidth(text), used+1+len(size(limit)))
	}
	return textWidth(text)
}

func barCell(r *row, _ time.Time) (string, tone) {
	const width = 8
	if !r.running() {
		return "", plain
	}
	used, limit := r.memory()
	switch {
	case limit <= 0:
		return "", plain
	case nearLimit(used, limit):
		return bar(used, limit, width), bad
	}
	return bar(used, limit, width), good
}

// bar draws a part of a whole as a line, which does not touch the lines above and below.
func bar(part, whole int64, width int) string {
	n := int(float64(min(max(part, 0), whole))/float64(whole)*float64(width) + 0.5)
	if part > 0 && n == 0 {
		n = 1
	}
	return strings.Repeat("━", n) + strings.Repeat("·", width-n)
}

func cacheCell(r *row, _ time.Time) (string, tone) {
	if !r.running() {
		return "-", faint
	}
	if r.part != nil {
		return size(r.part.Cache), plain
	}
	var sum int64
	for i := range r.instance.Processes {
		sum += r.instance.Processes[i].Cache
	}
	return size(sum), plain
}

func logCell(r *row, _ time.Time) (string, tone) {
	switch {
	case r.part != nil:
		return "", plain
	case !r.running():
		return "-", faint
	case r.instance.LogRate == 0:
		return "0", plain
	}
	return size(r.instance.LogRate), plain
}

func requestsCell(r *row, _ time.Time) (string, tone) {
	switch {
	case r.part != nil:
		return "", plain
	case !r.running():
		return "-", faint
	}
	return rate(r.instance.Requests), plain
}

func restartsCell(r *row, _ time.Time) (string, tone) {
	switch {
	case r.part != nil:
		return "", plain
	case r.instance == nil:
		return "-", faint
	case r.instance.Restarts > 0:
		return strconv.Itoa(r.instance.Restarts), warning
	}
	return "0", plain
}

func ageCell(r *row, now time.Time) (string, tone) {
	switch {
	case r.part != nil:
		return "", plain
	case r.instance == nil || r.instance.Since.IsZero():
		return "-", faint
	}
	return age(now.Sub(r.instance.Since)), plain
}

func detailsCell(r *row, now time.Time) (string, tone) {
	if r.part != nil {
		return partDetails(r.part), faint
	}
	return r.details(now), plain
}

// partDetails has the facts about a process that have no column.
func partDetails(p *v3.LivePart) string {
	facts := []string{"peak " + size(p.Peak)}
	if p.PeakEver > p.Peak {
		facts = append(facts, "highest ever "+size(p.PeakEver))
	}
	if p.Throttled >= 0.005 {
		facts = append(facts, "CPU limit held it back "+percent(p.Throttled)+" of the time")
	}
	return strings.Join(append(facts, plural(p.PIDs, "PID")), ", ")
}

// details say why an instance does not run, and what follows.
func (r *row) details(now time.Time) string {
	in := r.instance
	if in == nil {
		return ""
	}
	var facts []string
	add := func(text string) {
		if text != "" {
			facts = append(facts, text)
		}
	}
	crash := r.app.LastCrash
	if crash != nil && (crash.Type != in.Type || crash.Index != in.Index) {
		crash = nil
	}
	switch {
	case in.State == v3.StateRunning:
		add(clean(in.Details))
	case in.State == v3.StateCrashed && crash != nil:
		add(clean(crash.Sentence))
	default:
		add(clean(in.Details))
	}
	switch {
	case in.GivenUp:
		add("dew does not restart it")
	case !in.NextStart.IsZero() && in.State != v3.StateRunning:
		add(console.NextStart(in.NextStart, now))
	}
	return strings.Join(facts, "; ")
}
