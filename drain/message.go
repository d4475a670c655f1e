package drain

import (
	"strconv"
	"strings"
	"time"

	"github.com/dewrun/dew/logstream"
)

// Priorities of RFC 5424: facility user, severity informational or error.
const (
	priorityOut = 14
	priorityErr = 11
)

// Limits of the header fields.
const (
	maxHostname = 255
	maxProcID   = 128
)

// timeFormat has the six digits that RFC 5424 allows.
const timeFormat = "2006-01-02T15:04:05.000000Z07:00"

// message appends a line in the format of RFC 5424, as Cloud Foundry's drains write it:
//
//	<14>1 2026-01-02T15:04:05.000000Z org.space.app guid [APP/PROC/WEB/0] - - text
func message(dst []byte, e logstream.Envelope, host, app string) []byte {
	priority := priorityOut
	if e.Stream == logstream.Err {
		priority = priorityErr
	}
	dst = append(dst, '<')
	dst = strconv.AppendInt(dst, int64(priority), 10)
	dst = append(dst, ">1 "...)
	dst = e.Time.UTC().AppendFormat(dst, timeFormat)
	dst = append(dst, ' ')
	dst = append(dst, printable(host, maxHostname)...)
	dst = append(dst, ' ')
	dst = append(dst, app...)
	dst = append(dst, ' ')
	dst = append(dst, printable("["+e.Source.Type+"/"+strconv.Itoa(e.Source.Index)+"]", maxProcID)...)
	dst = append(dst, " - - "...)
	dst = append(dst, e.Text...)
	return append(dst, '\n')
}

// printable returns a header field: visible ASCII, of limited length, never empty. A
// sidecar's name can have spaces.
func printable(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r < '!' || r > '~':
			return '?'
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), limit)]
}

// frame appends a message after its length, the octet counting of RFC 6587.
func frame(dst, scratch []byte, e logstream.Envelope, names [2]string) (out, reuse []byte) {
	scratch = message(scratch[:0], e, names[0], names[1])
	dst = strconv.AppendInt(dst, int64(len(scratch)), 10)
	dst = append(dst, ' ')
	return append(dst, scratch...), scratch
}

// backoff returns the wait after the n-th failure in a row.
func backoff(first time.Duration, n int) time.Duration {
	const most = 60 // times the first
	return min(first<<min(max(n-1, 0), 10), most*first)
}
