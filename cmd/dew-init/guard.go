package main

import (
	"errors"
	"strconv"
	"syscall"
	"time"
)

// The guard limits the output of an instance while no dewd reads it. A process prints
// through its shim into capture files, with or without dewd. On a full disk the shim
// stops copying permanently, so the process must be paused before. dewd does that
// itself at a lower limit, but only PID 1 runs as long as the instance.

const (
	// fastest is the expected maximum output of a process in bytes per second.
	fastest = 512 << 20
	// A check costs about 100 µs in every container of the machine, most of it for
	// waking up. An instance that prints nothing is checked once per second.
	shortestWait = 20 * time.Millisecond
	pausedWait   = 100 * time.Millisecond
	longestWait  = time.Second

	// share is the fraction of the free space that one capture file can take, because
	// other processes print as well. lowShare is the same on a low disk. It is twice
	// the share at which dewd pauses a process, so that dewd acts first.
	share    = 4
	lowShare = 32
	// smallShare is always allowed: a block and an unfinished line stay in the file
	// however often dewd reads it.
	smallShare = 256 << 10
	// smallBacklog is always allowed on a disk that is not low, because dewd frees the
	// bytes that it has read in steps of 1 MiB.
	smallBacklog = 2 << 20
)

// guard pauses the processes of an instance.
type guard struct {
	capture, freezer string   // folders of the capture files and of one freezer file per process
	freeze, thaw     string   // values to write to a freezer file
	limit            int64    // unread bytes of one capture file above which its process is paused
	reserve          int64    // free bytes below which the disk is low
	execs            []string // the processes
	leaves           []leaf
	wait             time.Duration // until the next check
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
		return nil, errors.New("init needs either no arguments, or all options and a process after --")
	}
	g.execs = args[1:]
	return g, nil
}

// open opens the files. They exist before PID 1 starts, and as long as it runs. A
// process whose files cannot be opened is not guarded, because it must run anyway.
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

// run checks as long as the instance lives. It sleeps in the kernel, because a timer
// of the Go runtime would wake three threads each time.
func (g *guard) run() {
	for {
		wait := syscall.NsecToTimespec(int64(g.check()))
		_ = syscall.Nanosleep(&wait, nil) // a signal only makes the next check earlier
	}
}

// check measures every capture file and pauses or continues its process. It returns how
// long the next check can wait.
func (g *guard) check() time.Duration {
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

// decide is the rule: a process is paused above a limit, and continues when nearly all
// of its output is read. dewd can continue it earlier.
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

// nextWait is short if a process could soon reach its limit, or fill the disk. It grows
// while nothing is printed, as far as the free space allows.
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

// printing is how long a process takes to print a number of bytes.
func printing(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / fastest * float64(time.Second))
}

// pause writes to the freezer. A process that must not run is paused again at every
// check, because a dewd that was killed since could have continued it.
func (l *leaf) pause(g *guard, on bool) {
	word := g.thaw
	if on {
		word = g.freeze
	}
	if !on && !l.paused {
		return
	}
	if _, err := syscall.Pwrite(l.freezer, []byte(word), 0); err == nil {
		l.paused = on // otherwise the next check tries again
	}
}

// free is the free space on the disk of the capture files.
func (g *guard) free() int64 {
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(g.leaves[0].files[0], &s); err != nil {
		return g.reserve
	}
	return int64(s.Bavail) * s.Bsize
}

// measure returns the size of a capture file, and how many of its bytes dewd has not
// read and punched out. The number of blocks is a good estimate. A file system can
// allocate more after the end, so if there are many blocks, measure searches for the
// first byte of data.
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
