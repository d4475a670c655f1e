package console

import (
	"strings"
	"testing"
	"time"

	"github.com/dewrun/dew/api/v3"
)

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "y": true} {
		c := quiet()
		c.Interactive, c.In = true, strings.NewReader(answer)
		if got, err := c.Confirm(t.Context(), "Delete"); got != want || err != nil {
			t.Errorf("%q: %v, %v", answer, got, err)
		}
	}
}

func TestFormatLine(t *testing.T) {
	l := v3.Line{Time: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.Local), Source: "APP/PROC/WEB/SIDECAR/AGENT", Index: 1, Stream: "ERR", Text: []byte("no")}
	if got := FormatLine(l, LineStyle{}); !strings.HasPrefix(got, "2026-01-02T03:04:05.006") || !strings.HasSuffix(got, " [APP/PROC/WEB/SIDECAR/AGENT/1] ERR no") {
		t.Errorf("got %s", got)
	}
	if got := FormatLine(l, LineStyle{Color: true}); !strings.Contains(got, sourceColour(l.Source)+"[APP/PROC/WEB/SIDECAR/AGENT/1]"+NoColour+" "+Red+"ERR"+NoColour+" no") {
		t.Errorf("got %q", got)
	}
	l.Text = []byte("\x1b[2Jno")
	if got := FormatLine(l, LineStyle{Terminal: true}); !strings.HasSuffix(got, " ERR ^[[2Jno") {
		t.Errorf("got %q", got)
	}
	if sourceColour("API") != cyan || sourceColour("APP/PROC/WEB") != Green || sourceColour("APP/PROC/WEB/SIDECAR/AGENT") == Green {
		t.Error("an app, its sidecars and the platform must look different")
	}
}
