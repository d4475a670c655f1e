package wrapper

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/dewrun/dew/runtime/process"
)

// result is how a child exited.
type result struct {
	code int
	at   time.Time
}

// reaper starts the children of the wrapper and waits for all of them, and for orphans.
type reaper struct {
	mu      sync.Mutex // held while a child is started, so that its exit is not missed
	more    *sync.Cond
	running int
	waiting map[int]chan<- result
}

func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan<- result{}}
	r.more = sync.NewCond(&r.mu)
	go r.run()
	return r
}

// start starts a child. Its result is sent to ended.
func (r *reaper) start(argv []string, attr *syscall.ProcAttr, ended chan<- result) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	if err != nil {
		return 0, err
	}
	r.waiting[pid] = ended
	r.running++
	r.more.Broadcast()
	return pid, nil
}

func (r *reaper) run() {
	for {
		r.mu.Lock()
		for r.running == 0 {
			r.more.Wait()
		}
		r.mu.Unlock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		at := time.Now()
		if err == syscall.EINTR {
			continue
		}
		r.mu.Lock()
		if err != nil { // there are no children
			r.running = 0
		}
		if ended, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			r.running--
			ended <- result{exitCode(status), at}
		}
		r.mu.Unlock()
	}
}

func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// zombie reports whether a process has exited, and the wrapper has not waited for it yet.
func zombie(pid int) bool {
	s, ok := process.ReadStat(process.Dir(pid))
	return ok && s.Zombie()
}

// Descendants returns the running processes below root, without those below the
// processes in without.
func Descendants(root int, without map[int]bool) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := process.ReadStat(process.Dir(pid)); ok {
			children[s.Parent] = append(children[s.Parent], pid)
		}
	}
	var out []int
	for todo := slices.Clone(children[root]); len(todo) > 0; {
		pid := todo[0]
		todo = todo[1:]
		if without[pid] {
			continue
		}
		todo = append(todo, children[pid]...)
		if !zombie(pid) {
			out = append(out, pid)
		}
	}
	return out
}

// processes returns the processes of the command, without sessions.
func (w *wrapper) processes() []int {
	w.mu.Lock()
	without := make(map[int]bool, len(w.helpers))
	for pid := range w.helpers {
		without[pid] = true
	}
	w.mu.Unlock()
	return Descendants(os.Getpid(), without)
}

// signal sends a signal to every process of the command.
func (w *wrapper) signal(s syscall.Signal) {
	for _, pid := range w.processes() {
		_ = syscall.Kill(pid, s) // it can have exited
	}
}

// killAll kills every process of the command. It returns when none is left.
func (w *wrapper) killAll() { KillAll(w.processes) }

// KillAll kills the processes in list until none is left.
func KillAll(list func() []int) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids := list()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it can have exited
		}
		<-time.After(wait)
	}
}
