package containerd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// exitTime is when a process ended, as the kernel noted it.
type exitTime struct {
	of *exitTimes
	at time.Time // guarded by of.mu; zero while it lives
}

// exitTimes listens to the kernel's own notes of process ends. containerd's time is
// that of the shim's reaping, which on a busy machine comes many milliseconds
// later; who of two ended first hangs on it. Where the kernel gives no notes, or
// drops some because too many came at once, containerd's time stands.
type exitTimes struct {
	f *os.File

	mu      sync.Mutex // guards the field below
	watched map[int]*exitTime
}

// The kernel's process connector: messages of linux/connector.h and cn_proc.h.
const (
	connectorProc = 1 // CN_IDX_PROC and CN_VAL_PROC
	listenWord    = 1 // PROC_CN_MCAST_LISTEN
	execWord      = 2
	exitWord      = 0x80000000

	headerLen = unix.NLMSG_HDRLEN + 20 // struct cn_msg
	whatAt    = headerLen
	timeAt    = headerLen + 8
	pidAt     = headerLen + 16
	tgidAt    = headerLen + 20
	eventLen  = headerLen + 24
)

// listenExitTimes subscribes, for exits and execs only: everything else that happens
// on the machine is filtered by the kernel.
func listenExitTimes() (*exitTimes, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, fmt.Errorf("cannot open the process connector: %w", err)
	}
	f := os.NewFile(uintptr(fd), "process connector")
	loaded := func(word uint32) uint32 { // as the filter sees it
		return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, word))
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: whatAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loaded(exitWord), Jt: 1, Jf: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loaded(execWord), Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: connectorProc}),
		unix.Sendto(fd, listenMessage(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot listen to the process connector: %w", err), f.Close())
	}
	d := &exitTimes{f: f, watched: map[int]*exitTime{}}
	go d.read()
	return d, nil
}

func listenMessage() []byte {
	b := make([]byte, headerLen+4)
	ne := binary.NativeEndian
	ne.PutUint32(b, uint32(len(b)))
	ne.PutUint16(b[4:], unix.NLMSG_DONE)
	ne.PutUint32(b[unix.NLMSG_HDRLEN:], connectorProc)
	ne.PutUint32(b[unix.NLMSG_HDRLEN+4:], connectorProc)
	ne.PutUint16(b[unix.NLMSG_HDRLEN+16:], 4)
	ne.PutUint32(b[headerLen:], listenWord)
	return b
}

// close ends the listening. It may be called on none.
func (d *exitTimes) close() {
	if d != nil {
		_ = d.f.Close() // read then ends
	}
}

func (d *exitTimes) read() {
	for buf := make([]byte, 4096); ; {
		n, err := d.f.Read(buf)
		if errors.Is(err, unix.ENOBUFS) {
			continue // some were dropped: containerd's time stands for those
		}
		if err != nil {
			return
		}
		if e, ok := parseEvent(buf[:n]); ok {
			d.note(e)
		}
	}
}

// event is what the kernel tells of a process.
type event struct {
	what uint32
	pid  int
	at   time.Duration // since the boot
}

// parseEvent reads the end or the exec of a process, told by its first thread.
func parseEvent(b []byte) (event, bool) {
	ne := binary.NativeEndian
	if len(b) < eventLen || ne.Uint32(b[pidAt:]) != ne.Uint32(b[tgidAt:]) {
		return event{}, false
	}
	e := event{what: ne.Uint32(b[whatAt:]), pid: int(ne.Uint32(b[pidAt:])), at: time.Duration(ne.Uint64(b[timeAt:]))}
	return e, e.what == exitWord || e.what == execWord
}

// note remembers an end. An exec takes it back: when a thread that is not the
// first one calls execve, the first one ends and is told like the end of the whole.
func (d *exitTimes) note(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watched[e.pid]
	if w == nil {
		return
	}
	w.at = time.Time{}
	if e.what == exitWord {
		w.at = clockTime(e.at, sinceBoot, time.Now)
	}
}

// clockTime turns a time since the boot into one of the clock; zero where that
// cannot be told. Whoever is interrupted between reading the two is wrong by as
// much, and who ended first hangs on milliseconds: the closest of some readings
// counts.
func clockTime(at time.Duration, since func() (time.Duration, error), clock func() time.Time) (out time.Time) {
	const tries, near = 10, 100 * time.Microsecond
	best := time.Duration(math.MaxInt64)
	for n := 0; n < tries && best > near; n++ {
		before, err := since()
		now := clock()
		after, err2 := since()
		if err != nil || err2 != nil {
			return time.Time{}
		}
		if after-before < best {
			best, out = after-before, now.Add(at-before).Round(0)
		}
	}
	return out
}

// sinceBoot is the clock that the kernel's notes have.
func sinceBoot() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}

// watch begins to wait for the end of a process that still lives.
func (d *exitTimes) watch(pid int) *exitTime {
	if d == nil || pid == 0 {
		return nil
	}
	w := &exitTime{of: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[pid] = w
	return w
}

// forget ends a watch that nobody needs any more.
func (d *exitTimes) forget(pid int) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watched, pid)
}

// earlier is the better of the kernel's time and containerd's, and whether it is
// the kernel's. The process is dead, so the note is there, or a busy reader has it
// in a moment; only one that was dropped is waited for in vain.
func (w *exitTime) earlier(ctx context.Context, at time.Time) (time.Time, bool) {
	if w == nil {
		return at, false
	}
	for waited := time.Duration(0); waited < 100*time.Millisecond; waited += time.Millisecond {
		w.of.mu.Lock()
		noted := w.at
		w.of.mu.Unlock()
		if !noted.IsZero() && noted.After(at) {
			return at, true
		}
		if !noted.IsZero() {
			return noted, true
		}
		if pause(ctx, time.Millisecond) != nil {
			break
		}
	}
	return at, false
}
