package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat is a line of /proc/<pid>/stat.
type Stat struct {
	state   byte
	Parent  int
	exiting bool   // the kernel has begun to take it down
	threads int    // of the whole process
	born    uint64 // ticks since the boot
}

// The fields of /proc/<pid>/stat, counted from the state.
const (
	statParent  = 1
	statFlags   = 6
	statThreads = 17
	statBorn    = 19

	flagExiting = 0x4 // PF_EXITING
)

// ReadStat reads the stat file of a process or of a thread.
func ReadStat(dir string) (Stat, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Stat{}, false
	}
	return parseStat(string(b))
}

func parseStat(line string) (Stat, bool) {
	// The name before may hold spaces and brackets of its own.
	f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(f) <= statBorn {
		return Stat{}, false
	}
	var errs [4]error
	var s Stat
	var flags uint64
	s.state = f[0][0]
	s.Parent, errs[0] = strconv.Atoi(f[statParent])
	flags, errs[1] = strconv.ParseUint(f[statFlags], 10, 64)
	s.threads, errs[2] = strconv.Atoi(f[statThreads])
	s.born, errs[3] = strconv.ParseUint(f[statBorn], 10, 64)
	s.exiting = flags&flagExiting != 0
	for _, err := range errs {
		if err != nil {
			return Stat{}, false
		}
	}
	return s, true
}

// Dir is the folder of a process in /proc.
func Dir(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// BornAt tells one process from a later one with the same number. It is 0 for a
// process that is gone.
func BornAt(pid int) uint64 {
	s, _ := ReadStat(Dir(pid))
	return s.born
}

// Alive tells whether a process has not ended.
func Alive(pid int) bool { return pid != 0 && !Ended(pid, BornAt(pid)) }

// Ended tells whether the process with that number and time of birth has ended,
// or the kernel is taking it down. The second matters: its sockets are closed
// before it counts as dead, and PID 1 of a container dies only after everything
// it takes along. Signal 0 would not do: a zombie answers it.
func Ended(pid int, born uint64) bool {
	if pid == 0 {
		return false
	}
	s, ok := ReadStat(Dir(pid))
	switch {
	case !ok || born == 0 || s.born != born:
		return true
	case s.state != 'Z' && s.state != 'X' && !s.exiting:
		return false
	case s.threads <= 1:
		return true
	}
	return threadsEnded(pid)
}

// threadsEnded tells whether every thread of a process is on its way out. The
// first one can end alone and leave the rest running.
func threadsEnded(pid int) bool {
	dirs, err := filepath.Glob(filepath.Join(Dir(pid), "task", "*"))
	if err != nil {
		return false // the pattern is ours: it never fails
	}
	for _, dir := range dirs {
		if s, ok := ReadStat(dir); ok && !s.exiting && s.state != 'Z' && s.state != 'X' {
			return false
		}
	}
	return true
}

// File is a file of a process in /proc.
func File(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// OpenFiles lists what a process has open.
func OpenFiles(pid int) map[string]bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	held := make(map[string]bool, len(entries))
	for _, e := range entries {
		if id, err := FileID(filepath.Join(dir, e.Name())); err == nil {
			held[id] = true
		}
	}
	return held
}

// FileID tells open files apart by what they are, not by a path: the same file
// has several below a linked folder.
func FileID(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", err
	}
	kind := "file"
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		kind = "pipe"
	}
	return fmt.Sprintf("%s %d:%d", kind, st.Dev, st.Ino), nil
}
