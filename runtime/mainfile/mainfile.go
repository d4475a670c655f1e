package mainfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// The file has a part of fixed length for each report, and then the request. The parts
// are written before the container starts: a full disk cannot prevent a report.
const (
	startAt   = 0
	exitAt    = 1024
	requestAt = 2048
	longest   = 1023 // longest report without its newline
)

// Request describes the process.
type Request struct {
	UID, GID uint32
	Dir      string
	Args     []string
	Env      []string
}

// errNUL reports text that a process cannot get from the kernel.
var errNUL = errors.New("an argument or a variable contains a NUL byte")

// Encode returns the whole file of a process that has not started.
func (r Request) Encode() ([]byte, error) {
	fields := []string{strconv.FormatUint(uint64(r.UID), 10), strconv.FormatUint(uint64(r.GID), 10), r.Dir, strconv.Itoa(len(r.Args))}
	fields = append(append(fields, r.Args...), r.Env...)
	b := make([]byte, requestAt)
	for _, f := range fields {
		if strings.IndexByte(f, 0) >= 0 {
			return nil, errNUL
		}
		b = append(append(b, f...), 0)
	}
	return b, nil
}

// ReadReports returns the part of a file that has the reports. It reads no more: an app that is
// root of its container could make the file larger than the memory.
func ReadReports(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b := make([]byte, requestAt)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// errRequest reports a file without a complete request.
var errRequest = errors.New("the request for the main process is not complete")

// Decode returns the request in a file.
func Decode(file []byte) (Request, error) {
	if len(file) <= requestAt || file[len(file)-1] != 0 {
		return Request{}, errRequest
	}
	fields := strings.Split(string(file[requestAt:len(file)-1]), "\x00")
	const fixed = 4
	if len(fields) < fixed {
		return Request{}, errRequest
	}
	uid, err := strconv.ParseUint(fields[0], 10, 32)
	gid, gerr := strconv.ParseUint(fields[1], 10, 32)
	n, nerr := strconv.Atoi(fields[3])
	if err != nil || gerr != nil || nerr != nil || n < 1 || n > len(fields)-fixed {
		return Request{}, errRequest
	}
	return Request{
		UID: uint32(uid), GID: uint32(gid), Dir: fields[2], Args: fields[fixed : fixed+n], Env: fields[fixed+n:],
	}, nil
}

// Start is the report that the process was started, or why not.
type Start struct {
	PID     int    // as PID 1 sees it
	Failure string // empty: it was started
}

// Exit is the report that the process exited.
type Exit struct {
	Code int // as a shell shows it: 128 and the number of a signal
	At   time.Time
}

const (
	startedWord = "started"
	failedWord  = "failed"
	exitedWord  = "exited"
)

// WriteStart reports a start.
func WriteStart(w io.WriterAt, s Start) error {
	if s.Failure != "" {
		return write(w, startAt, failedWord+" "+s.Failure)
	}
	return write(w, startAt, startedWord+" "+strconv.Itoa(s.PID))
}

// WriteExit reports an exit.
func WriteExit(w io.WriterAt, x Exit) error {
	return write(w, exitAt, exitedWord+" "+strconv.Itoa(x.Code)+" "+strconv.FormatInt(x.At.UnixNano(), 10))
}

func write(w io.WriterAt, at int64, text string) error {
	text = strings.Map(func(r rune) rune {
		if r == 0 || r == '\n' {
			return ' '
		}
		return r
	}, text)
	_, err := w.WriteAt([]byte(text[:min(len(text), longest)]+"\n"), at)
	return err
}

// ReadStart returns the report of the start, if PID 1 has written it.
func ReadStart(file []byte) (Start, bool) {
	word, rest, ok := read(file, startAt)
	switch {
	case ok && word == startedWord:
		pid, err := strconv.Atoi(rest)
		return Start{PID: pid}, err == nil && pid > 1
	case ok && word == failedWord && rest != "":
		return Start{Failure: rest}, true
	}
	return Start{}, false
}

// ReadExit returns the report of the exit, if PID 1 has written it.
func ReadExit(file []byte) (Exit, bool) {
	word, rest, ok := read(file, exitAt)
	code, at, two := strings.Cut(rest, " ")
	if !ok || word != exitedWord || !two {
		return Exit{}, false
	}
	c, err := strconv.ParseUint(code, 10, 8)
	ns, aerr := strconv.ParseInt(at, 10, 64)
	if err != nil || aerr != nil || ns <= 0 {
		return Exit{}, false
	}
	return Exit{Code: int(c), At: time.Unix(0, ns)}, true
}

// read returns the words of a report. A report that is being written has no newline yet,
// or still has zeros before it.
func read(file []byte, at int) (word, rest string, ok bool) {
	if len(file) < at {
		return "", "", false
	}
	part := file[at:min(len(file), at+longest+1)]
	line, _, ended := bytes.Cut(part, []byte{'\n'})
	if !ended || bytes.IndexByte(line, 0) >= 0 {
		return "", "", false
	}
	word, rest, ok = strings.Cut(string(line), " ")
	return word, rest, ok
}
