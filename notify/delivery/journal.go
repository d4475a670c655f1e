package delivery

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// journal records which mails are being handed over to the mail server, in a file. The
// store needs milliseconds to record a result; a line in a file needs microseconds. So a
// Courier that is killed sends only those mails again whose answer it has not read.
//
//	BeforeData ─▶ "data ID" ─▶ the server's answer ─▶ "accepted ID" ─▶ Settle ─▶ forget
//	                             └─ refused, or none ─▶ Settle ─▶ forget: "settled ID"
//
// The lines are not synced: they survive the end of the process, but not always a power
// failure.
type journal struct {
	path string

	mu      sync.Mutex // guards the fields below
	file    *os.File
	size    int
	entries map[string]handover // mails that the store has not recorded yet
}

// handover is how far a mail came.
type handover string

const (
	handedOver handover = "data"     // the server can have accepted it
	accepted   handover = "accepted" // the server has accepted it
	settled    handover = "settled"  // it did not, and the store has recorded that
)

// journalHandover records the hand-over of one mail.
type journalHandover struct {
	j     *journal
	id    string
	began bool
}

// BeforeData implements Handover.
func (h *journalHandover) BeforeData() error {
	h.began = true
	return h.j.record(h.id, handedOver)
}

// maxJournal is the size in bytes at which the file is written again without the mails
// that the store has recorded.
const maxJournal = 1 << 20

// openJournal reads the file at path, and creates it if it does not exist.
func openJournal(path string) (*journal, error) {
	j := &journal{path: path, entries: map[string]handover{}}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the mails that were being sent: %w", err)
	}
	j.entries = parseJournal(string(old))
	if err := j.rewrite(); err != nil {
		return nil, err
	}
	return j, nil
}

// parseJournal returns the mails in the content of a file. It ignores a line that was
// not written to its end.
func parseJournal(content string) map[string]handover {
	entries := map[string]handover{}
	for line := range strings.Lines(content) {
		line, complete := strings.CutSuffix(line, "\n")
		state, id, ok := strings.Cut(line, " ")
		if !complete || !ok || id == "" {
			continue
		}
		switch handover(state) {
		case handedOver:
			if entries[id] != accepted {
				entries[id] = handedOver
			}
		case accepted:
			entries[id] = accepted
		case settled:
			delete(entries, id)
		}
	}
	return entries
}

// with returns the ids of the mails in a state, sorted.
func (j *journal) with(state handover) (ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(j.entries)) {
		if j.entries[id] == state {
			ids = append(ids, id)
		}
	}
	return ids
}

// record stores the state of a mail.
func (j *journal) record(id string, state handover) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, err := io.WriteString(j.file, journalLine(id, state))
	j.size += n
	if err != nil {
		return fmt.Errorf("cannot record that a mail is being sent: %w", err)
	}
	j.entries[id] = state
	return nil
}

func journalLine(id string, state handover) string { return string(state) + " " + id + "\n" }

// forget drops mails whose results are in the store.
func (j *journal) forget(ids []string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines strings.Builder
	for _, id := range ids {
		if j.entries[id] == handedOver {
			lines.WriteString(journalLine(id, settled))
		}
		delete(j.entries, id)
	}
	if j.size >= maxJournal || len(j.entries) == 0 && j.size > 0 {
		return j.rewrite()
	}
	n, err := io.WriteString(j.file, lines.String())
	j.size += n
	if err != nil {
		return fmt.Errorf("cannot record which mails are no longer being sent: %w", err)
	}
	return nil
}

// rewrite replaces the file by one with the current entries.
func (j *journal) rewrite() error {
	if err := j.replace(); err != nil {
		return fmt.Errorf("cannot write the mails that are being sent: %w", err)
	}
	return nil
}

func (j *journal) replace() (err error) {
	if len(j.entries) == 0 && j.file != nil {
		j.size = 0
		return j.file.Truncate(0) // it is open for appending
	}
	next := j.path + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	w, size := bufio.NewWriter(f), 0
	for id, state := range j.entries {
		n, _ := w.WriteString(journalLine(id, state)) // Flush returns the error
		size += n
	}
	if err = w.Flush(); err == nil {
		err = os.Rename(next, j.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if j.file != nil {
		err = j.file.Close()
	}
	j.file, j.size = f, size
	return err
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}
