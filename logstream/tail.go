package logstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream/disk"
)

const (
	readSize   = 1 << 20 // bytes per read, and maximum per batch
	batchLines = 4096
	turnReads  = 8 // reads before the next tail gets its turn
)

// Capture describes the capture file that a Tail follows.
type Capture struct {
	Source Source
	Exec   string
	Stream Stream

	// Late marks the lines that are already in the file: the daemon restarted while the
	// process kept printing.
	Late bool

	// Paused says that the process was found frozen. It waits until the lines it
	// printed without a daemon are stored.
	Paused bool

	// Freeze stops the process or lets it continue. Nil means that the process cannot
	// be frozen. A process has two capture files and is frozen while one of them
	// requests it, so both functions must do the same.
	Freeze func(frozen bool) error

	// Limit limits how much is stored. Nil means no limit. The capture files of an
	// instance share one Limit.
	Limit *Limit
}

// Tail follows one capture file. It holds no buffer and no goroutine, because the
// workers of Logs read for it.
type Tail struct {
	log  *Log
	c    Capture
	key  streamKey
	path string
	turn turn // guarded by queue.mu

	mu        sync.Mutex // held while reading. Guards the fields below.
	late      span
	over      over
	lateLimit *Limit // limit for the lines in late
	frozen    cause
	unsure    bool // an earlier daemon could have left the process frozen
	warned    bool // a persistent error is already logged

	tried     atomic.Int64 // size of the file when it was last read
	again     atomic.Bool  // the syncer must check the file even if it has not grown
	passed    atomic.Int64 // bytes before this offset are in the log, or dropped
	finishing atomic.Bool  // Finish is waiting, so a worker stops its turn early

	holes   sync.Mutex // guards the fields below. Taken after mu.
	file    *os.File   // nil after following has stopped. Set with both locks held.
	punched int64
}

// Tail follows a capture file from the offset up to which the log has it.
func (l *Log) Tail(c Capture) (*Tail, error) {
	t := &Tail{
		log: l, c: c, unsure: c.Late && c.Freeze != nil,
		key:  streamKey{c.Source.InstanceID, c.Exec, c.Stream},
		path: l.CapturePath(c.Source.InstanceID, c.Exec, c.Stream),
	}
	if c.Limit != nil {
		t.lateLimit = NewLimit(c.Limit.rate)
	}
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("cannot follow %s: %w", t.path, err)
	}
	l.logs.queue.put(t)
	return t, nil
}

func (t *Tail) open() error {
	if err := errors.Join(checkName(t.key.Instance), checkName(t.key.Exec)); err != nil {
		return err
	}
	if t.c.Stream != Out && t.c.Stream != Err {
		return fmt.Errorf("%d is not a valid stream", t.c.Stream)
	}
	// A worker can find the tail as soon as it is registered. It waits for this lock.
	t.mu.Lock()
	defer t.mu.Unlock()
	f, err := os.OpenFile(t.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	t.file = f
	if err := t.log.logs.register(t); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := t.begin(); err != nil {
		t.stop()
		return err
	}
	return nil
}

// begin checks the bytes that are already in the file.
func (t *Tail) begin() error {
	t.tried.Store(-1)
	if err := t.skipHole(); err != nil {
		return err
	}
	t.findPunched()
	st, err := t.file.Stat()
	if err != nil || !t.c.Late {
		return err
	}
	t.log.mu.Lock()
	last := t.log.last
	t.log.mu.Unlock()
	t.late = newSpan(t.log.offset(t.key), st.Size(), last, st.ModTime().UnixNano())
	t.recordPaused()
	return nil
}

// skipHole skips bytes that no longer exist. They were read and punched out, and the
// log has lost them since (a power cut, a damaged segment). The loss becomes a gap
// record that covers their range.
func (t *Tail) skipHole() error {
	from := t.log.offset(t.key)
	st, err := t.file.Stat()
	if err != nil || from >= st.Size() {
		return err
	}
	to, err := t.file.Seek(from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		to, err = st.Size(), nil
	}
	if err != nil || to <= from || !t.zero(from) {
		return nil // without SEEK_DATA no hole can be detected
	}
	gap := gapLine(t.c.Source, Loss{Bytes: to - from, Cause: LostDamage}, fmt.Sprintf("%d bytes of the output of %s are lost", to-from, t.key))
	gap.Stream, gap.Exec, gap.From, gap.To = t.c.Stream, t.c.Exec, from, to
	return t.log.Append(gap)
}

// findPunched finds how much an earlier daemon has already punched out.
func (t *Tail) findPunched() {
	from := t.log.offset(t.key)
	to, err := t.file.Seek(0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		to, err = from, nil
	}
	if err != nil {
		return // without SEEK_DATA it is punched once more
	}
	t.holes.Lock()
	defer t.holes.Unlock()
	t.punched = holeEnd(0, min(from, to), disk.Block)
}

// zero reports whether the byte at from is zero, as in a hole.
func (t *Tail) zero(from int64) bool {
	var b [1]byte
	_, err := t.file.ReadAt(b[:], from)
	return err == nil && b[0] == 0
}

// Backlog is how many bytes of the file are not in the log yet.
func (t *Tail) Backlog() int64 {
	size, ok := t.size()
	if !ok {
		return 0
	}
	return max(0, size-t.position())
}

// Size is how many bytes were printed into the file, or 0 after following has stopped.
func (t *Tail) Size() int64 {
	size, _ := t.size()
	return size
}

// size returns the file's size, unless following has stopped.
func (t *Tail) size() (int64, bool) {
	t.holes.Lock()
	defer t.holes.Unlock()
	if t.file == nil {
		return 0, false
	}
	st, err := t.file.Stat()
	if err != nil {
		return 0, false
	}
	return st.Size(), true
}

// needsCheck reports to the syncer whether the file has grown unnoticed.
func (t *Tail) needsCheck() bool {
	size, ok := t.size()
	return ok && (size != t.tried.Load() || t.again.Load())
}

// Close stops following without finishing. The next Tail continues where this one
// stopped. A process that waits for its backlog is thawed, because nothing else would
// thaw it. A process on a full disk stays frozen, because more output would break its
// capture.
func (t *Tail) Close() {
	t.finishing.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.pressure(0); t.frozen != notFrozen && !p.full() {
		t.freeze(notFrozen, p)
	}
	t.stop()
}

// stop stops the following. The caller holds t.mu.
func (t *Tail) stop() {
	t.log.logs.unregister(t)
	t.log.removeLeaf(t)
	t.frozen = notFrozen
	t.holes.Lock()
	defer t.holes.Unlock()
	if t.file == nil {
		return
	}
	_ = t.file.Close() // nothing was written through it
	t.file = nil
}

// Finish is for a process that has exited, when nothing writes to the file any more. It
// reads to the end, appends all full batches, and returns the last lines, at most one
// batch. The caller appends them together with the cause of the exit. Then the file is
// no longer followed. After an error it still is, and the caller can call Finish again.
func (t *Tail) Finish(ctx context.Context) ([]Envelope, error) {
	t.finishing.Store(true)
	defer t.finishing.Store(false)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil, fmt.Errorf("cannot read the rest of %s: %w", t.path, ErrClosed)
	}
	if t.frozen != notFrozen {
		t.freeze(notFrozen, pressure{})
	}
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		last, err := t.readOut(w)
		if err == nil && last == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the rest of %s: %w", t.path, err)
		}
		t.stop()
		return last, nil
	}
}

// readOut reads once. It appends lines that are followed by more. At the end of the
// file it returns copies of the last lines, never nil.
func (t *Tail) readOut(w *workspace) ([]Envelope, error) {
	size, ok := t.size()
	if !ok {
		return nil, errors.New("cannot get the size of the file")
	}
	b, from, err := t.read(w, size)
	if err != nil {
		return nil, err
	}
	how := growing
	if len(b) < len(w.buf) || from+int64(len(b)) >= size {
		how = ended
	}
	safe := t.pressure(size).mustFree()
	for {
		es := t.cut(w, b, from, how)
		used := usedBy(es, from)
		b, from = b[used:], from+used
		if len(b) == 0 && how == ended {
			return keep(t.applyLimit(w, es, true)), nil
		}
		if len(es) == 0 {
			return nil, nil
		}
		if err := t.store(w, es, safe); err != nil {
			return nil, err
		}
	}
}

// step reads for a while. It reports whether there is more to read at once.
func (t *Tail) step() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	for range turnReads {
		more, err := t.readOn(w)
		if err != nil {
			t.fail(err)
			return false
		}
		if !more {
			return false
		}
	}
	return true
}

// readOn reads once and appends all whole lines. It reports whether there could be
// more.
func (t *Tail) readOn(w *workspace) (bool, error) {
	size, ok := t.size()
	if !ok {
		return false, nil
	}
	t.tried.Store(size)
	p := t.pressure(size)
	if p.backlog > 0 || t.unsure { // read bytes are not punched yet: drained thaws the process
		t.bound(p)
	}
	b, from, err := t.read(w, size)
	if err != nil {
		return false, err
	}
	whole := len(b)
	for {
		es := t.cut(w, b, from, growing)
		if len(es) == 0 {
			break
		}
		if err := t.store(w, es, p.mustFree()); err != nil {
			return false, err
		}
		used := usedBy(es, from)
		b, from = b[used:], from+used
		if t.finishing.Load() {
			t.again.Store(true) // in case finishing fails
			return false, nil
		}
	}
	more := len(b) < whole
	if err := t.recordOver(w, p.mustFree()); err != nil {
		return false, err
	}
	if !more {
		if err := t.drained(); err != nil {
			return false, err
		}
	}
	t.warned = false
	return more, nil
}

// read fills the workspace's buffer from the log's offset on.
func (t *Tail) read(w *workspace, size int64) ([]byte, int64, error) {
	from := t.position()
	b := w.buf[:max(0, min(int64(len(w.buf)), size-from))]
	n, err := t.file.ReadAt(b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, from, fmt.Errorf("cannot read the capture file: %w", err)
	}
	return b[:n], from, nil
}

// cut creates the next batch of envelopes in the workspace.
func (t *Tail) cut(w *workspace, b []byte, from int64, how ending) []Envelope {
	like := Envelope{Source: t.c.Source, Exec: t.c.Exec, Stream: t.c.Stream, From: from}
	es := cutLines(w.lines[:0], like, b, how)
	t.late.mark(es)
	return es
}

func usedBy(es []Envelope, from int64) int64 {
	if len(es) == 0 {
		return 0
	}
	return es[len(es)-1].To - from
}

// store applies the limit to a batch and appends the lines that it admits.
func (t *Tail) store(w *workspace, es []Envelope, safe bool) error {
	passed, over := t.passed.Load(), t.over
	es = t.applyLimit(w, es, false)
	if len(es) == 0 {
		return nil
	}
	if err := t.append(es, safe); err != nil {
		t.over = over // the bytes are read again and checked against the limit again
		t.passed.Store(passed)
		return err
	}
	return nil
}

// append adds a batch to the log. If safe is set, its bytes are synced and punched
// before the next batch. So draining a full disk needs space for only one batch.
func (t *Tail) append(es []Envelope, safe bool) error {
	if err := t.log.Append(es...); err != nil || !safe {
		return err
	}
	return t.freeSynced()
}

// freeSynced syncs the lines that were read and punches them out of the capture file.
func (t *Tail) freeSynced() error {
	if err := t.log.sync(); err != nil {
		return err
	}
	_, err := t.punch(disk.Block)
	return err
}

// fail logs once that the log does not accept lines, and freezes the process. The
// syncer triggers the next try.
func (t *Tail) fail(err error) {
	if errors.Is(err, ErrClosed) {
		return
	}
	t.again.Store(true)
	if !t.warned {
		t.warned = true
		t.log.log.Error("cannot read the output of a process; trying again every second", "capture", t.path, "err", err)
	}
	if isFull(err) && t.frozen == notFrozen {
		size, _ := t.size()
		t.freeze(lowDisk, t.pressure(size))
	}
}

// punch frees the bytes that are synced in the log, in steps of at least step bytes. It
// returns how many bytes it freed.
func (t *Tail) punch(step int64) (int64, error) {
	synced := t.log.synced(t.key)
	t.holes.Lock()
	defer t.holes.Unlock()
	end := holeEnd(t.punched, synced, step)
	if t.file == nil || end == t.punched {
		return 0, nil
	}
	if err := t.log.logs.disk.Punch(t.file, t.punched, end); err != nil {
		return 0, fmt.Errorf("cannot punch a hole: %w", err)
	}
	given := end - t.punched
	t.punched = end
	return given, nil
}

// workspace is the memory for reading. All tails share a few.
type workspace struct {
	buf   []byte
	lines []Envelope
	kept  []Envelope // admitted lines, if there is a limit
}

var workspaces = sync.Pool{New: func() any {
	return &workspace{buf: make([]byte, readSize), lines: make([]Envelope, 0, batchLines)}
}}

// keep copies lines out of a workspace.
func keep(es []Envelope) []Envelope {
	size := 0
	for i := range es {
		size += len(es[i].Text)
	}
	texts := make([]byte, 0, size)
	kept := make([]Envelope, len(es))
	for i, e := range es {
		from := len(texts)
		texts = append(texts, e.Text...)
		e.Text = texts[from:len(texts):len(texts)]
		kept[i] = e
	}
	return kept
}
