package drain

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/logstream"
)

var someTime = time.Date(2026, 1, 2, 15, 4, 5, 123456789, time.FixedZone("", 3600))

func TestMessage(t *testing.T) {
	line := func(source string, s logstream.Stream, text string) logstream.Envelope {
		return logstream.Envelope{Time: someTime, Source: logstream.Source{Type: source, Index: 2}, Stream: s, Text: []byte(text)}
	}
	tests := []struct {
		name, host string
		e          logstream.Envelope
		want       string
	}{
		{"out", "local.dev.web", line("APP/PROC/WEB", logstream.Out, "hello  world"), "<14>1 2026-01-02T14:04:05.123456Z local.dev.web guid [APP/PROC/WEB/2] - - hello  world\n"},
		{"err", "h", line("RTR", logstream.Err, ""), "<11>1 2026-01-02T14:04:05.123456Z h guid [RTR/2] - - \n"},
		{"spaces", "", line("APP/PROC/WEB/SIDECAR/CONFIG SERVER", logstream.Out, "é\x00"), "<14>1 2026-01-02T14:04:05.123456Z - guid [APP/PROC/WEB/SIDECAR/CONFIG-SERVER/2] - - é\x00\n"},
		{"host", "büro.x y", line("API", logstream.Out, "."), "<14>1 2026-01-02T14:04:05.123456Z b?ro.x-y guid [API/2] - - .\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(message(nil, tt.e, tt.host, "guid")); got != tt.want {
				t.Errorf("message =\n%q, want\n%q", got, tt.want)
			}
		})
	}
}

// For any text, a receiver can parse the frames, and finds five fields before the text.
func FuzzFrame(f *testing.F) {
	f.Add("APP/PROC/WEB", "org.space.app", []byte("text"))
	f.Add("", "", []byte{0xff, 0, '1', '0', ' '})
	f.Fuzz(func(t *testing.T, source, host string, text []byte) {
		if bytes.ContainsRune(text, '\n') {
			t.Skip("a line has no newline")
		}
		e := logstream.Envelope{Time: someTime, Source: logstream.Source{Type: source}, Stream: logstream.Out, Text: text}
		out, scratch := frame(nil, nil, e, [2]string{host, "guid"})
		out, _ = frame(out, scratch, e, [2]string{host, "guid"})
		for range 2 {
			size, rest, ok := bytes.Cut(out, []byte{' '})
			n, err := strconv.Atoi(string(size))
			if !ok || err != nil || n > len(rest) {
				t.Fatalf("no frame: %q", out)
			}
			msg := rest[:n]
			out = rest[n:]
			fields := bytes.SplitN(msg, []byte{' '}, 8)
			if len(fields) != 8 || !bytes.Equal(fields[7], append(bytes.Clone(text), '\n')) {
				t.Fatalf("message %q has %d fields, want 8 with the text last", msg, len(fields))
			}
			for _, field := range fields[:7] {
				if len(field) == 0 || len(field) > maxHostname {
					t.Errorf("message %q has a field of %d bytes", msg, len(field))
				}
			}
		}
		if len(out) != 0 {
			t.Errorf("%q is left over", out)
		}
	})
}

func TestCheckURL(t *testing.T) {
	for _, good := range []string{"syslog://h:1", "syslog-tls://h", "https://u:p@h/path?key=1", "https-batch://[::1]:9/x", "SYSLOG://h"} {
		if err := CheckURL(good); err != nil {
			t.Errorf("CheckURL(%q) = %v", good, err)
		}
	}
	for _, bad := range []string{"", "h:1", "http://h", "syslog:///x", "syslog://:514", "ftp://secret@h", "syslog://h:secret", "https://h/" + strings.Repeat("x", maxURL), "syslog://%zz-secret"} {
		err := CheckURL(bad)
		if err == nil {
			t.Errorf("CheckURL(%q) takes it", bad)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("CheckURL(%q) repeats what may be secret: %v", bad, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		if got := backoff(time.Second, n); got != want {
			t.Errorf("backoff(%d) = %s, want %s", n, got, want)
		}
	}
}
