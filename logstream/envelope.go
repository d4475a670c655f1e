package logstream

import (
	"fmt"
	"strings"
	"time"
)

// Stream is the output stream that a line was printed to.
type Stream uint8

// The streams of a process.
const (
	Out Stream = 1
	Err Stream = 2
)

// String returns the stream's name as log lines show it.
func (s Stream) String() string {
	if s == Err {
		return "ERR"
	}
	return "OUT"
}

// suffix returns the file name suffix of the stream's capture file.
func (s Stream) suffix() string {
	if s == Err {
		return ".err"
	}
	return ".out"
}

// Flags mark special properties of an Envelope.
type Flags uint8

// The flags of an Envelope.
const (
	Late    Flags = 1 << iota // read after a daemon restart, so the time is an estimate
	Cut                       // the line was longer than MaxLine and continues in the next Envelope
	Partial                   // the process exited without a final newline
	Gap                       // not a line: Text says which lines are missing and why
)

// Source identifies the origin of a line.
type Source struct {
	Type       string // "APP/PROC/WEB/SIDECAR/CONFIG SERVER", "API", "CELL"
	Index      int    // instance index
	InstanceID string // empty if the platform's line is not about an instance
}

// Process returns the process type, and the name of the sidecar, of a line that a process
// of an app printed, in upper case. Both are empty for other lines.
func (s Source) Process() (process, sidecar string) {
	rest, ok := strings.CutPrefix(s.Type, "APP/PROC/")
	if !ok {
		return "", ""
	}
	process, sidecar, _ = strings.Cut(rest, "/SIDECAR/")
	return process, sidecar
}

// Envelope is one log line with its source.
type Envelope struct {
	Seq    uint64    // per app, without gaps, from 1, set by Log.Append
	Time   time.Time // strictly increasing per app, set by Log.Append if zero
	Source Source
	Stream Stream
	Flags  Flags
	Text   []byte // without the newline, any bytes

	// The byte range of the line in the capture file, including its newline. Both are
	// zero, and Exec is empty, for lines that come from no capture file.
	Exec     string
	From, To int64

	Lost *Loss // of a gap record, nil for lines
}

// Loss holds the contents of a gap record as fields. The record's Text is the sentence.
type Loss struct {
	Lines int64  // 0 means unknown
	Bytes int64  // bytes of a capture file, 0 if lines were dropped after they were read
	Cause string // one of the Lost constants, or another cause given by the caller of Gap
}

// The causes of losses that this package detects.
const (
	LostRetention = "retention"      // dropped to keep the log within its size and age limits
	LostPower     = "power_cut"      // the machine stopped before they were synced to disk
	LostDamage    = "damaged"        // the disk returned different bytes than were written
	LostUnread    = "removed_unread" // removed with the instance that printed them
	LostRate      = "rate_limit"     // the instance printed more than its rate limit
)

const lineTime = "2006-01-02T15:04:05.000Z07:00"

// String returns the line as both command lines show it: <time> [APP/PROC/WEB/0] OUT
// text.
func (e Envelope) String() string {
	return fmt.Sprintf("%s [%s/%d] %s %s", e.Time.Format(lineTime), e.Source.Type, e.Source.Index, e.Stream, e.Text)
}

// captured reports whether the line comes from a capture file.
func (e *Envelope) captured() bool { return e.Exec != "" }

// gapLine returns the platform's record of a loss.
func gapLine(src Source, lost Loss, text string) Envelope {
	return Envelope{Source: src, Stream: Err, Flags: Gap, Text: []byte(text), Lost: &lost}
}

// sourceCell is the source type of the platform's own lines about instances.
const sourceCell = "CELL"

// cellLine returns a line from the platform about an instance's logs.
func cellLine(about Source, text string) Envelope {
	about.Type = sourceCell
	return Envelope{Source: about, Stream: Err, Text: []byte(text)}
}
