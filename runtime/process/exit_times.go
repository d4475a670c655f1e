package process

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

// ExitTime is the time when a process exited, from the kernel.
type ExitTime struct {
	of *ExitTimes
	at time.Time // guarded by of.mu; zero while it is running
}

// ExitTimes receives the kernel's exit events. containerd's time is that of the shim's
// reaping, which is many milliseconds later on a busy machine. That can change which of
// two processes exited first. If the kernel sends no events, or drops some because
// there are too many, containerd's time is used.
type ExitTimes struct {
	f *os.File

	mu      sync.Mutex // guards the field below
	watched map[int]*ExitTime
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

// ListenExitTimes subscribes to exits and execs only: the kernel filters all other
// events of the machine.
func ListenExitTimes() (*ExitTimes, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, fmt.Errorf("cannot open the process connector: %w", err)
	}
	f := os.NewFile(uintptr(fd), "process connector")
	loaded := func(word uint32) uint32 { // in the byte order of the filter
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
	d := &ExitTimes{f: f, watched: map[int]*ExitTime{}}
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

// Close stops listening. It can be called on nil.
func (d *ExitTimes) Close() {
	if d != nil {
		_ = d.f.Close() // this stops read
	}
}

func (d *ExitTimes) read() {
	for buf := make([]byte, 4096); ; {
		n, err := d.f.Read(buf)
		if errors.Is(err, unix.ENOBUFS) {
			continue // some were dropped: containerd's time is used for those
		}
		if err != nil {
			return
		}
		if e, ok := parseEvent(buf[:n]); ok {
			d.note(e)
		}
	}
}

// event is the kernel's event about a process.
type event struct {
	what uint32
	pid  int
	at   time.Duration // since boot
}

// parseEvent reads the exit or the exec of a process. Only events of the first thread
// count.
func parseEvent(b []byte) (event, bool) {
	ne := binary.NativeEndian
	if len(b) < eventLen || ne.Uint32(b[pidAt:]) != ne.Uint32(b[tgidAt:]) {
		return event{}, false
	}
	e := event{what: ne.Uint32(b[whatAt:]), pid: int(ne.Uint32(b[pidAt:])), at: time.Duration(ne.Uint64(b[timeAt:]))}
	return e, e.what == exitWord || e.what == execWord
}

// note stores an exit. An exec deletes it again. If a thread that is not the first
// calls execve, the first thread exits, and its event looks like the exit of the whole
// process.
func (d *ExitTimes) note(e event) {
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

// clockTime converts a time since boot to wall-clock time, or zero if the clocks cannot
// be read. An interruption between the two readings causes an error of the same length,
// and milliseconds decide which process exited first. Therefore the closest of several
// readings counts.
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

// sinceBoot reads the clock of the kernel's events.
func sinceBoot() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}

// Watch starts to watch for the exit of a running process.
func (d *ExitTimes) Watch(pid int) *ExitTime {
	if d == nil || pid == 0 {
		return nil
	}
	w := &ExitTime{of: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[pid] = w
	return w
}

// Forget ends a watch that is no longer needed.
func (d *ExitTimes) Forget(pid int) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watched, pid)
}

// Earlier returns the earlier of the kernel's time and containerd's, and whether it is
// the kernel's. The process is dead, so the event is there or arrives in a moment. Only
// for a dropped event does the wait time out.
func (w *ExitTime) Earlier(ctx context.Context, at time.Time) (time.Time, bool) {
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
		if Sleep(ctx, time.Millisecond) != nil {
			break
		}
	}
	return at, false
}

// Sleep waits for d, or until ctx is done. It is for loops that query the kernel.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
