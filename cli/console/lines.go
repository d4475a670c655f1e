package console

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/dewrun/dew/api/v3"
)

// LineStyle is how log lines are written.
type LineStyle struct {
	Color    bool
	Terminal bool // to a terminal, which would obey control characters
}

// LineTime is the layout of the time of a log line.
const LineTime = "2006-01-02T15:04:05.000Z07:00"

// AppendLine appends a log line:
// <time> [APP/PROC/WEB/SIDECAR/CONFIG-SERVER/0] OUT text.
func AppendLine(b []byte, l *v3.Line, as LineStyle) []byte {
	b = l.Time.Local().AppendFormat(b, LineTime)
	b = append(b, ' ')
	if as.Color {
		b = append(b, sourceColour(l.Source)...)
	}
	b = fmt.Appendf(b, "[%s/%d]", l.Source, l.Index)
	if as.Color {
		b = append(b, NoColour...)
	}
	b = append(b, ' ')
	if as.Color && l.Stream == "ERR" {
		b = append(append(append(b, Red...), l.Stream...), NoColour...)
	} else {
		b = append(b, l.Stream...)
	}
	b = append(b, ' ')
	if as.Terminal {
		return AppendPrintable(b, l.Text, as.Color)
	}
	return append(b, l.Text...)
}

// FormatLine is the line that AppendLine writes.
func FormatLine(l v3.Line, as LineStyle) string { return string(AppendLine(nil, &l, as)) }

// sourceColours are the colours of an app's processes and sidecars. The platform has
// its own colour, and ERR is red.
var sourceColours = []string{Yellow, "\x1b[34m", "\x1b[35m", "\x1b[92m", "\x1b[93m", "\x1b[94m", "\x1b[95m"}

// sourceColour returns the colour of a source, which is always the same.
func sourceColour(source string) string {
	switch {
	case !strings.HasPrefix(source, "APP/"):
		return cyan
	case source == "APP/PROC/WEB":
		return Green
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(source)) // it never fails
	return sourceColours[int(h.Sum32()%uint32(len(sourceColours)))]
}
