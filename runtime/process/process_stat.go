package process

import (
	"errors"
	"fmt"
	"io/fs"
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
	exiting bool   // the kernel has started to remove it
	threads int    // number in the whole process
	born    uint64 // start time in ticks since boot
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
	s, ok, _ := readStat(dir)
	return s, ok
}

// readStat is ReadStat. gone is set if the process does not exist: a file can also be
// unreadable because this process has too many open files.
func readStat(dir string) (s Stat, ok, gone bool) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Stat{}, false, isGone(err)
	}
	s, ok = parseStat(string(b))
	return s, ok, !ok
}

// isGone reports whether a file of /proc cannot be read because its process has exited.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func parseStat(line string) (Stat, bool) {
	// The preceding name can contain spaces and parentheses.
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

// Dir returns the folder of a process in /proc.
func Dir(pid int) string { return filepath.Join("/proc", strconv.Itoa(pid)) }

// BornAt returns the start time of a process, which distinguishes it from a later one
// with the same pid. It is 0 for a process that does not exist.
func BornAt(pid int) uint64 {
	s, _ := ReadStat(Dir(pid))
	return s.born
}

// Alive reports whether a process has not exited.
func Alive(pid int) bool { return pid != 0 && !Ended(pid, BornAt(pid)) }

// Ended reports whether the process with that pid and start time has exited, or is
// exiting. The second matters, because its sockets are closed before it counts as dead.
// Also, PID 1 of a container exits only after all processes that it terminates. Signal
// 0 cannot be used, because it succeeds for a zombie. A process whose state cannot be read
// has not exited.
func Ended(pid int, born uint64) bool {
	if pid == 0 {
		return false
	}
	s, ok, gone := readStat(Dir(pid))
	switch {
	case born == 0 || gone || ok && s.born != born:
		return true
	case !ok:
		return false
	case s.state != 'Z' && s.state != 'X' && !s.exiting:
		return false
	case s.threads <= 1:
		return true
	}
	return threadsEnded(pid)
}

// threadsEnded reports whether every thread of a process is exiting. The first one can
// exit alone and leave the others running.
func threadsEnded(pid int) bool {
	dirs, err := filepath.Glob(filepath.Join(Dir(pid), "task", "*"))
	if err != nil {
		return false // never fails: the pattern is valid
	}
	for _, dir := range dirs {
		if s, ok := ReadStat(dir); ok && !s.exiting && s.state != 'Z' && s.state != 'X' {
			return false
		}
	}
	return true
}

// Numbers returns the pid of a process in every pid namespace that has it, the innermost
// last. It is empty for a process that does not exist.
func Numbers(pid int) ([]int, error) {
	b, err := os.ReadFile(File(pid, "status"))
	if err != nil && !isGone(err) {
		return nil, fmt.Errorf("cannot read the numbers of a process: %w", err)
	}
	return parseNumbers(string(b)), nil
}

func parseNumbers(status string) []int {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "NSpid:")
		if !ok {
			continue
		}
		var all []int
		for _, f := range strings.Fields(rest) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil
			}
			all = append(all, n)
		}
		return all
	}
	return nil
}

// File returns the path of a file of a process in /proc.
func File(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// OpenFiles returns the open files of a process.
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

// FileID identifies an open file by device and inode, not by path: the same file can
// have several paths below a linked folder.
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

// CountFiles returns the number of open files of a process, or 0 if it does not run.
func CountFiles(pid int) int {
	if pid <= 0 {
		return 0
	}
	entries, err := os.ReadDir(File(pid, "fd"))
	if err != nil {
		return 0
	}
	return len(entries)
}

// Zombie reports whether the process has exited, and its parent has not waited for it.
func (s Stat) Zombie() bool { return s.state == 'Z' || s.state == 'X' }
