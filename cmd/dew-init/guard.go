package main

import (
	"errors"
	"strconv"
	"syscall"
	"time"
)

// The guard is what bounds the output of an instance while no dewd reads it. A
// process prints through its shim into capture files, with or without dewd. On a
// full disk the shim stops copying for good, so the process must be paused before.
// dewd does that itself at a lower bound; PID 1 is there for as long as the instance.

const (
	// fastest is how many bytes per second a process is expected to print at most.
	fastest = 512 << 20
	// A look costs some 100 µs in every container of the machine, most of it for
	// waking up: an instance that prints nothing is looked at once per second.
	shortestWait = 20 * time.Millisecond
	pausedWait   = 100 * time.Millisecond
	longestWait  = time.Second

	// share is the part of the free space that one capture file can take: others print
	// as well. lowShare is the same on a low disk. It is twice the share at which dewd
	// pauses a process: dewd acts first.
	share    = 4
	lowShare = 32
	// smallShare is never too much: a block and an unfinished line stay in the file
	// however often dewd reads it.
	smallShare = 256 << 10
	// smallBacklog is never too much on a disk that is not low: dewd gives back what
	// it has read in steps of 1 MiB.
	smallBacklog = 2 << 20
)

// guard pauses the processes of an instance.
type guard struct {
	capture, freezer string   // folders: of the capture files, of one freezer file per process
	freeze, thaw     string   // what is written to a freezer file
	limit            int64    // unread bytes of one capture file above which its process is paused
	reserve          int64    // free bytes below which the disk is low
	execs            []string // the processes
	leaves           []leaf
	wait             time.Duration // until the next look
}

// leaf is one process with its children.
type leaf struct {
	files   []int // its capture files
	sizes   []int64
	freezer int
	paused  bool
}

func parseGuard(args []string) (*guard, error) {
	g := &guard{}
	for len(args) > 0 && args[0] != "--" {
		if len(args) < 2 {
			return nil, errors.New(args[0] + " needs a value")
		}
		var err error
		switch name, value := args[0], args[1]; name {
		case "--capture":
			g.capture = value
		case "--freezer":
			g.freezer = value
		case "--freeze":
			g.freeze = value
		case "--thaw":
			g.thaw = value
		case "--limit":
			g.limit, err = strconv.ParseInt(value, 10, 64)
		case "--reserve":
			g.reserve, err = strconv.ParseInt(value, 10, 64)
		default:
			err = errors.New("unknown option")
		}
		if err != nil {
			return nil, errors.New(args[0] + ": " + err.Error())
		}
		args = args[2:]
	}
	if len(args) < 2 || g.capture == "" || g.freezer == "" || g.freeze == "" || g.thaw == "" || g.limit <= 0 {
		return nil, errors.New("init needs no argument, or all options and a process after --")
	}
	g.execs = args[1:]
	return g, nil
}

// open takes hold of the files. They are there before PID 1 is, and stay as long. A
// process whose files cannot be opened is not guarded: it must run all the same.
func (g *guard) open() {
	for _, exec := range g.execs {
		l := leaf{freezer: open(g.freezer+"/"+exec, syscall.O_WRONLY)}
		for _, suffix := range []string{".out", ".err"} {
			if fd := open(g.capture+"/"+exec+suffix, syscall.O_RDONLY); fd >= 0 {
				l.files, l.sizes = append(l.files, fd), append(l.sizes, 0)
			}
		}
		if l.freezer >= 0 && len(l.files) > 0 {
			g.leaves = append(g.leaves, l)
		}
	}
}

func open(path string, mode int) int {
	fd, err := syscall.Open(path, mode|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// keep looks for as long as the instance lives. It sleeps in the kernel: a timer of
// the runtime would wake three threads each time.
func (g *guard) keep() {
	for {
		wait := syscall.NsecToTimespec(int64(g.look()))
		_ = syscall.Nanosleep(&wait, nil) // a signal only makes the next look earlier
	}
}

// look measures every capture file and pauses or continues its process. It returns
// how long the next look can wait.
func (g *guard) look() time.Duration {
	free := g.free()
	grown, paused, room := false, false, g.limit
	for i := range g.leaves {
		l := &g.leaves[i]
		var most int64
		for n, fd := range l.files {
			size, held := measure(fd)
			grown = grown || size != l.sizes[n]
			l.sizes[n] = size
			most = max(most, held)
		}
		l.pause(g, g.decide(l.paused, most, free))
		paused = paused || l.paused
		room = min(room, g.limit-most)
	}
	g.wait = nextWait(g.wait, room, free, grown, paused)
	return g.wait
}

// decide is the rule: a process is paused above a bound, and goes on when nearly
// all is read. Its own dewd may continue it sooner.
func (g *guard) decide(paused bool, held, free int64) bool {
	part, small := free/share, max(g.limit/16, smallBacklog)
	if free < g.reserve {
		part, small = free/lowShare, g.limit
	}
	bound := min(g.limit, max(part, smallShare))
	if paused {
		return held > min(small, bound/2)
	}
	return held > bound
}

// nextWait is short when a process could reach its bound, or fill the disk, soon.
// It grows while nothing is printed, as far as the free space allows.
func nextWait(last time.Duration, room, free int64, grown, paused bool) time.Duration {
	next := 2 * last
	if grown {
		next = printing(room)
	}
	if paused {
		next = min(next, pausedWait)
	}
	return min(max(min(next, printing(free)), shortestWait), longestWait)
}

// printing is how long a process takes to print so many bytes.
func printing(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / fastest * float64(time.Second))
}

// pause writes to the freezer. A process that must not run is paused at every look:
// a dewd that was killed since may have continued it.
func (l *leaf) pause(g *guard, on bool) {
	word := g.thaw
	if on {
		word = g.freeze
	}
	if !on && !l.paused {
		return
	}
	if _, err := syscall.Pwrite(l.freezer, []byte(word), 0); err == nil {
		l.paused = on // otherwise the next look tries again
	}
}

// free is the space on the disk of the capture files.
func (g *guard) free() int64 {
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(g.leaves[0].files[0], &s); err != nil {
		return g.reserve
	}
	return int64(s.Bavail) * s.Bsize
}

// measure gives the size of a capture file, and how much of it dewd has not read
// and punched out. The blocks tell most of it; a file system may have allocated
// more behind the end, so where they say much the first byte of data is looked for.
func measure(fd int) (size, held int64) {
	const seekData = 3
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return 0, 0
	}
	held = min(st.Size, st.Blocks*512)
	if held < smallShare {
		return st.Size, held
	}
	if from, err := syscall.Seek(fd, 0, seekData); err == nil {
		held = min(held, st.Size-from)
	}
	return st.Size, held
}
