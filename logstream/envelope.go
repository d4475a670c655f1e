package logstream

import (
	"fmt"
	"time"
)

// Stream is where a line was printed.
type Stream uint8

// The streams of a process.
const (
	Out Stream = 1
	Err Stream = 2
)

// String gives the stream's name as log lines show it.
func (s Stream) String() string {
	if s == Err {
		return "ERR"
	}
	return "OUT"
}

// suffix ends the name of the stream's capture file.
func (s Stream) suffix() string {
	if s == Err {
		return ".err"
	}
	return ".out"
}

// Flags mark what is special about an Envelope.
type Flags uint8

// The flags of an Envelope.
const (
	Late    Flags = 1 << iota // read when a daemon came back; its time is an estimate
	Cut                       // the line was longer than MaxLine and goes on in the next Envelope
	Partial                   // the process ended without a newline
	Gap                       // no line: Text says what is missing and why
)

// Source says who speaks.
type Source struct {
	Type       string // "APP/PROC/WEB/SIDECAR/CONFIG SERVER", "API", "CELL"
	Index      int    // of the instance
	InstanceID string // empty where the platform speaks of no instance
}

// Envelope is one log line with its source.
type Envelope struct {
	Seq    uint64    // per app, dense, from 1; set by Log.Append
	Time   time.Time // strictly increasing per app; set by Log.Append where zero
	Source Source
	Stream Stream
	Flags  Flags
	Text   []byte // without the newline; any bytes

	// Where the line stands in the capture file, its newline included. Both are
	// zero, and Exec is empty, for lines that come from no capture file.
	Exec     string
	From, To int64

	Lost *Loss // of a gap record: what is missing; nil for lines
}

// Loss is what a gap record tells, as fields; the record's Text is the sentence.
type Loss struct {
	Lines int64  // 0: nobody knows how many
	Bytes int64  // of a capture file; 0 where lines were dropped after they were read
	Cause string // one of the Lost constants, or the word of whoever found the loss
}

// The causes of losses that this package finds.
const (
	LostRetention = "retention"      // dropped to keep the log within its bounds
	LostPower     = "power_cut"      // the machine stopped before they were safe on disk
	LostDamage    = "damaged"        // the disk gave back other bytes than were written
	LostUnread    = "removed_unread" // removed with the instance that printed them
	LostRate      = "rate_limit"     // more was printed than the instance may
)

const lineTime = "2006-01-02T15:04:05.000Z07:00"

// String gives the line as both command lines show it:
// <time> [APP/PROC/WEB/0] OUT text.
func (e Envelope) String() string {
	return fmt.Sprintf("%s [%s/%d] %s %s", e.Time.Format(lineTime), e.Source.Type, e.Source.Index, e.Stream, e.Text)
}

// captured tells whether the line stands in a capture file.
func (e *Envelope) captured() bool { return e.Exec != "" }

// gapLine is the record of a loss, said by the platform.
func gapLine(src Source, lost Loss, text string) Envelope {
	return Envelope{Source: src, Stream: Err, Flags: Gap, Text: []byte(text), Lost: &lost}
}

// sourceCell is what the platform's own lines about instances come from.
const sourceCell = "CELL"

// cellLine is a sentence of the platform about an instance's logs.
func cellLine(about Source, text string) Envelope {
	about.Type = sourceCell
	return Envelope{Source: about, Stream: Err, Text: []byte(text)}
}
