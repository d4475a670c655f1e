package logstream

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/logstream/disk"
)

// MaxLine is the maximum number of bytes of a line in one Envelope. Longer lines are
// split and marked, never lost.
const MaxLine = 64 << 10

const (
	defaultReserve   = 512 << 20
	defaultBacklog   = 64 << 20
	defaultSegment   = 8 << 20
	defaultRetention = 256 << 20

	// Without a daemon, a capture file can grow to ceilingFactor times the backlog on a
	// large disk, and at least to minCeiling.
	ceilingFactor = 4
	minCeiling    = 4 << 20

	syncInterval = time.Second
	maxWorkers   = 4
)

// ErrClosed says that the logs were closed.
var ErrClosed = errors.New("the logs are closed")

// Options limit the disk space of the logs. Zero means the default. On a small file
// system each limit shrinks to a fraction of its size.
type Options struct {
	Reserve      int64         // free bytes below which processes are frozen for a smaller backlog, default 512 MiB
	Backlog      int64         // unread bytes of one capture file above which its process is frozen, default 64 MiB
	SegmentBytes int64         // size at which the next segment starts, default 8 MiB
	Retention    int64         // bytes of segments stored per app, default 256 MiB
	Age          time.Duration // approximate maximum age of stored lines, 0 for no limit
	Logger       *slog.Logger
}

// scaled fills in defaults and shrinks the limits to a file system of size bytes.
func (o Options) scaled(size int64) Options {
	or := func(v, def, most int64) int64 {
		if v <= 0 {
			v = def
		}
		return max(min(v, most), disk.Block)
	}
	o.Reserve = or(o.Reserve, defaultReserve, size/4)
	o.Backlog = or(o.Backlog, defaultBacklog, size/4)
	o.SegmentBytes = or(o.SegmentBytes, defaultSegment, size/32)
	o.Retention = or(o.Retention, defaultRetention, size/4)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// ceiling is how many unread bytes of one capture file a file system of size bytes has
// room for while no daemon reads them. It is above the backlog, so that a running
// daemon acts first.
func (o Options) ceiling(size int64) int64 {
	return max(min(ceilingFactor*o.Backlog, max(size/4, o.Backlog)), minCeiling)
}

// Logs holds the logs of all apps. One watcher, a few workers and one syncer serve
// every Tail.
type Logs struct {
	dir     string
	o       Options
	log     *slog.Logger
	boot    string
	disk    disk.Ops
	reserve disk.Reserve
	floor   int64 // free bytes below which the disk is full
	ceiling int64 // unread bytes of a capture file above which its instance pauses the process
	watch   *fsnotify.Watcher
	queue   queue
	pace    pace
	kick    chan struct{} // wakes the syncer early
	done    chan struct{}
	group   sync.WaitGroup

	mu     sync.Mutex // guards the fields below. No other lock is taken while it is held.
	apps   map[string]*Log
	opened []chan<- *Log    // receivers of newly opened logs
	gone   map[string]bool  // apps whose logs were removed
	tails  map[string]*Tail // by path of the capture file
	dirs   map[string]int   // watched folders and their number of tails
	closed bool

	opening     sync.Mutex // one recovery at a time. Taken before mu, never while mu is held.
	freeSpaceMu sync.Mutex // one search for free space at a time. Held inside no other lock of this package but Tail.mu.
}

// Open opens the logs under dir. It refuses a file system that cannot punch holes,
// because the space of read bytes could never be freed while a process runs.
func Open(dir string, o Options) (*Logs, error) {
	return open(dir, o, disk.Real())
}

func open(dir string, o Options, d disk.Ops) (*Logs, error) {
	ls, err := prepare(dir, o, d)
	if err != nil {
		return nil, err
	}
	ls.start()
	return ls, nil
}

// prepare does everything except starting the goroutines.
func prepare(dir string, o Options, d disk.Ops) (*Logs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the log folder: %w", err)
	}
	if err := disk.CheckPunch(dir, d); err != nil {
		return nil, err
	}
	_, size, err := d.Space(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot get the size of the file system of %s: %w", dir, err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("cannot watch capture files (is fs.inotify.max_user_instances too low?): %w", err)
	}
	o = o.scaled(size)
	ls := &Logs{
		dir: dir, o: o, log: o.Logger, boot: bootID(), disk: d,
		reserve: disk.Reserve{Path: filepath.Join(dir, "reserve"), Size: disk.ReserveSize(size)},
		watch:   w, kick: make(chan struct{}, 1), done: make(chan struct{}),
		apps: map[string]*Log{}, gone: map[string]bool{}, tails: map[string]*Tail{}, dirs: map[string]int{},
	}
	ls.floor = floorFor(o.Reserve, ls.reserve.Size)
	ls.ceiling = o.ceiling(size)
	ls.queue.init()
	if err := ls.ClearRemoved(); err != nil {
		ls.log.Warn("cannot remove logs of deleted apps, trying again later", "err", err)
	}
	if err := ls.reserve.Create(d); err != nil {
		ls.log.Warn("cannot reserve disk space for a full disk", "err", err)
	}
	return ls, nil
}

func (ls *Logs) start() {
	ls.group.Go(ls.follow)
	ls.group.Go(ls.syncLoop)
	for range min(max(goruntime.GOMAXPROCS(0), 2), maxWorkers) {
		ls.group.Go(ls.work)
	}
}

// App returns the log of an app. The first call for an app recovers its log.
func (ls *Logs) App(guid string) (*Log, error) {
	if err := checkName(guid); err != nil {
		return nil, fmt.Errorf("cannot open the log of app %q: %w", guid, err)
	}
	ls.opening.Lock()
	defer ls.opening.Unlock()
	ls.mu.Lock()
	l, closed, gone := ls.apps[guid], ls.closed, ls.gone[guid]
	ls.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if gone {
		return nil, fmt.Errorf("cannot open the log of app %s: %w", guid, ErrRemoved)
	}
	if l != nil {
		return l, nil
	}
	l, err := openLog(ls, filepath.Join(ls.dir, guid))
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of app %s: %w", guid, err)
	}
	ls.mu.Lock()
	ls.apps[guid] = l
	ls.announce(l)
	ls.mu.Unlock()
	l.recordLosses()
	return l, nil
}

// Ceiling returns the limits that an instance enforces by itself, because the daemon
// can be killed while the process prints. unread is the number of unread bytes of one
// capture file above which its process must be paused. reserve is the number of free
// bytes below which the disk is low.
func (ls *Logs) Ceiling() (unread, reserve int64) { return ls.ceiling, ls.o.Reserve }

// Apps returns the apps that have logs on disk.
func (ls *Logs) Apps() ([]string, error) {
	entries, err := os.ReadDir(ls.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list logs: %w", err)
	}
	var guids []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), removedPrefix) {
			guids = append(guids, e.Name())
		}
	}
	return guids, nil
}

// Close stops following and syncs the lines that were read. Everything stays on disk
// for the next daemon.
func (ls *Logs) Close() error {
	ls.opening.Lock()
	defer ls.opening.Unlock()
	ls.mu.Lock()
	if ls.closed {
		ls.mu.Unlock()
		return nil
	}
	ls.closed = true
	ls.mu.Unlock()
	for _, t := range ls.openTails() {
		t.Close()
	}
	close(ls.done)
	ls.queue.close()
	err := ls.watch.Close()
	ls.group.Wait()
	for _, l := range ls.openLogs() {
		err = errors.Join(err, l.close())
	}
	return err
}

// Retention is how many bytes of segments are stored per app: the option, or a quarter
// of the file system if that is less.
func (ls *Logs) Retention() int64 { return ls.o.Retention }

// Stats is a snapshot of the state of the logs.
type Stats struct {
	Tails      int           // followed capture files
	Backlog    int64         // unread bytes in all of them
	MaxBacklog int64         // unread bytes in the fullest of them
	Frozen     int           // processes frozen because of their logs
	Free       int64         // bytes free on the file system
	Appends    int64         // batches appended since Open
	AppendTime time.Duration // time spent in them
	AppendMax  time.Duration // the slowest of them
}

// Stats measures the logs.
func (ls *Logs) Stats() Stats {
	var s Stats
	s.Appends, s.AppendTime, s.AppendMax = ls.pace.read()
	for _, t := range ls.openTails() {
		n := t.Backlog()
		s.Tails++
		s.Backlog += n
		s.MaxBacklog = max(s.MaxBacklog, n)
	}
	for _, l := range ls.openLogs() {
		s.Frozen += l.frozenLeaves()
	}
	if free, _, err := ls.disk.Space(ls.dir); err == nil {
		s.Free = free
	}
	return s
}

// pace measures how long appends take.
type pace struct {
	mu       sync.Mutex // guards all fields
	count    int64
	sum, max time.Duration
}

func (p *pace) add(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	p.sum += d
	p.max = max(p.max, d)
}

func (p *pace) read() (count int64, sum, slowest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.sum, p.max
}

func (ls *Logs) openLogs() []*Log {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	logs := make([]*Log, 0, len(ls.apps))
	for _, l := range ls.apps {
		logs = append(logs, l)
	}
	sort.Slice(logs, func(i, j int) bool { return logs[i].dir < logs[j].dir })
	return logs
}

func (ls *Logs) openTails() []*Tail {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	tails := make([]*Tail, 0, len(ls.tails))
	for _, t := range ls.tails {
		tails = append(tails, t)
	}
	return tails
}

// register adds t to the watcher and the workers.
func (ls *Logs) register(t *Tail) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return ErrClosed
	}
	if ls.tails[t.path] != nil {
		return errors.New("the capture file is already being read")
	}
	dir := filepath.Dir(t.path)
	if ls.dirs[dir] == 0 {
		if err := ls.watch.Add(dir); err != nil {
			return fmt.Errorf("cannot watch %s (is fs.inotify.max_user_watches too low?): %w", dir, err)
		}
	}
	ls.dirs[dir]++
	ls.tails[t.path] = t
	return nil
}

func (ls *Logs) unregister(t *Tail) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.tails[t.path] != t {
		return
	}
	delete(ls.tails, t.path)
	dir := filepath.Dir(t.path)
	ls.dirs[dir]--
	if ls.dirs[dir] > 0 {
		return
	}
	delete(ls.dirs, dir)
	if err := ls.watch.Remove(dir); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) && !errors.Is(err, fsnotify.ErrClosed) {
		ls.log.Debug("cannot stop watching", "dir", dir, "err", err)
	}
}

// follow wakes the tails whose files grow.
func (ls *Logs) follow() {
	for {
		select {
		case ev, ok := <-ls.watch.Events:
			if !ok {
				return
			}
			ls.mu.Lock()
			t := ls.tails[ev.Name]
			ls.mu.Unlock()
			if t != nil && ev.Has(fsnotify.Write) {
				ls.queue.put(t)
			}
		case err, ok := <-ls.watch.Errors:
			if !ok {
				return
			}
			// An overflow can lose events of any file, so check all of them.
			ls.log.Warn("some events of capture files were lost; checking all capture files", "err", err)
			for _, t := range ls.openTails() {
				ls.queue.put(t)
			}
		}
	}
}

// work reads for the next tail in the queue, until the queue is closed.
func (ls *Logs) work() {
	for {
		t := ls.queue.take()
		if t == nil {
			return
		}
		more := t.step()
		ls.queue.release(t, more)
	}
}

// checkName refuses names that would point outside their folder.
func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return errors.New("the name must be a single path element and must not start with a dot")
	}
	return nil
}

// bootID identifies one boot of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
