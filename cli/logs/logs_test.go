package logs

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/cli/console"
)

// With --raw a gap is reported on stderr.
func TestPrintRaw(t *testing.T) {
	var out, talk bytes.Buffer
	p := newLinePrinter(options{Raw: true}, &console.Console{Out: &out, Err: &talk})
	a := &appLog{name: "shop"}
	for _, l := range []v3.Line{
		{Text: []byte("one, ")},
		{Text: []byte("2 lines missing"), Flags: []string{v3.FlagGap}},
		{Text: []byte("two"), Flags: []string{v3.FlagCut}},
	} {
		if err := p.line(a, &l); err != nil {
			t.Fatal(err)
		}
	}
	// A line of another app does not continue a line that was cut.
	if err := errors.Join(p.line(&appLog{name: "cart"}, &v3.Line{Text: []byte("three")}), p.flush()); err != nil || out.String() != "one, \ntwo\nthree\n" || talk.String() != "shop: 2 lines missing\n" {
		t.Errorf("got %q and %q, %v", out.String(), talk.String(), err)
	}
}
