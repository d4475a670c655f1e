package load

import (
	"maps"
	"slices"
	"sync"

	"github.com/dewrun/dew/fire/world"
)

// Ending is how an instance must end after a fault, according to its exit record.
type Ending struct {
	Fault       string
	Cause       []string // one of them
	Sidecar     bool     // the sidecar is the process that exited first
	AnyProcess  bool     // the record can name any process of the instance
	LosesOutput bool     // lines that were in a pipe can be missing at the end
	Maybe       bool     // the instance can also survive
}

// Printer is a process that prints numbered lines.
type Printer struct{ Instance, Role string }

// Ledger notes what happened and what was promised. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	slots    map[string]world.Slot // every instance that was seen, by id
	starting *Ending               // how an instance can end that is seen for the first time now; nil for no fault
	endings  map[string]Ending     // by instance
	printed  map[Printer]int       // lines that a process reported to have printed
	reported map[string]int        // the sum of printed by app
	values   map[string]Value      // by app, see writes.go
	spaces   []string              // names that dewd acknowledged
	mails    []Mail                // accepted notifications
	counts   map[string]int        // for the report
	problems []string              // violations that were seen at once
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		slots: map[string]world.Slot{}, endings: map[string]Ending{}, printed: map[Printer]int{}, reported: map[string]int{}, values: map[string]Value{},
		counts: map[string]int{},
	}
}

// See notes that an instance ran.
func (l *Ledger) See(in world.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.Slot.App == "" {
		return
	}
	if _, known := l.slots[in.ID]; !known && l.starting != nil {
		l.end(in.ID, *l.starting)
	}
	l.slots[in.ID] = in.Slot
}

// Starting says how instances can end that are seen for the first time before the returned
// function is called.
func (l *Ledger) Starting(e Ending) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting = &e
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.starting = nil
	}
}

// Seen returns every instance that ran, by id.
func (l *Ledger) Seen() map[string]world.Slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.slots)
}

// End notes how an instance must end. Of the notes of one fault the first one counts. If
// another fault follows, the instance ends by one of them.
func (l *Ledger) End(id string, e Ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(id, e)
}

// end is End for a caller that holds l.mu.
func (l *Ledger) end(id string, e Ending) {
	old, known := l.endings[id]
	if known && old.Fault == e.Fault && !old.Maybe {
		return
	}
	if known {
		e.Cause = append(slices.Clone(e.Cause), old.Cause...)
		e.AnyProcess, e.LosesOutput, e.Maybe = true, e.LosesOutput || old.LosesOutput, e.Maybe && old.Maybe
	}
	l.endings[id] = e
}

// Endings returns how instances must end, by id.
func (l *Ledger) Endings() map[string]Ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.endings)
}

// Print notes the number of lines that a process of an app reported.
func (l *Ledger) Print(app string, p Printer, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := n - l.printed[p]; more > 0 {
		l.printed[p] = n
		l.reported[app] += more
	}
}

// Reported returns the number of lines that the processes of an app reported.
func (l *Ledger) Reported(app string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reported[app]
}

// Printed returns the number of lines that processes reported.
func (l *Ledger) Printed() map[Printer]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.printed)
}

// Count adds to a number of the report.
func (l *Ledger) Count(name string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[name] += n
}

// Counts returns the numbers of the report.
func (l *Ledger) Counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// Problem notes a violation that was seen while the load ran.
func (l *Ledger) Problem(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, text)
}

// Problems returns the violations that were seen while the load ran.
func (l *Ledger) Problems() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.problems...)
}
