package v3

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sampleLines() []Line {
	at := time.Unix(1700000000, 123456789).UTC()
	return []Line{
		{Seq: 1, Time: at, Source: "API", Stream: "OUT", Text: []byte("hello")},
		{Seq: 2, Time: at.Add(1), Source: "APP/PROC/WEB/SIDECAR/CONFIG SERVER", Index: 3, Instance: "i-1", Stream: "ERR", Flags: []string{FlagLate, FlagPartial}, Text: []byte("a\x00\xff\nb")},
		{Seq: 1 << 60, Time: at.Add(2), Source: "CELL", Index: -1, Stream: "ERR", Flags: []string{FlagGap}, Text: []byte("gone"), Lost: &Loss{Lines: 7, Bytes: 1 << 40, Cause: "retention"}},
		{Seq: 1<<60 + 1, Time: at.Add(3), Source: "APP/PROC/WEB", Stream: "OUT", Flags: []string{FlagCut}, Text: bytes.Repeat([]byte("x"), 64<<10)},
		{Seq: 1<<60 + 2, Time: at.Add(4), Source: "APP/PROC/WEB", Stream: "OUT", Text: []byte{}},
	}
}

func TestLinesRoundTrip(t *testing.T) {
	want := sampleLines()
	var b []byte
	for i := range want {
		b = AppendLine(AppendBeat(b, want[i].Seq-1), &want[i])
	}
	whole := AppendEnd(b)
	r := NewLineReader(bytes.NewReader(whole))
	var got []Line
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := r.Place(); l == nil && (!ok || at != want[len(got)].Seq-1) {
			t.Errorf("the place before line %d is %d, %v", want[len(got)].Seq, at, ok)
		}
		if l != nil {
			one := *l
			one.Text = append([]byte{}, l.Text...)
			got = append(got, one)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for cut := range len(whole) - 1 { // a stream without an end record is an error
		if cut > 500 && cut < len(whole)-500 {
			continue
		}
		r := NewLineReader(bytes.NewReader(whole[:cut]))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, ErrBrokenOff) || errors.Is(err, io.EOF) {
			t.Fatalf("cut at %d: %v, want that it was broken off", cut, err)
		}
	}
}

// A texts record moves the place to its last line. One that is cut off is not delivered.
func TestTextsRoundTrip(t *testing.T) {
	line := sampleLines()[2]
	b := AppendLine(nil, &line)
	start := len(b)
	b = EndTexts(append(BeginTexts(b), "one\ntwo\n"...), start, 1<<62)
	whole := AppendEnd(b)
	r := NewLineReader(bytes.NewReader(whole))
	if l, err := r.Next(); err != nil || l == nil || l.Seq != line.Seq || r.Texts() != nil {
		t.Fatalf("first record = %+v, %v, texts %q, want line %d", l, err, r.Texts(), line.Seq)
	}
	l, err := r.Next()
	at, ok := r.Place()
	if l != nil || err != nil || string(r.Texts()) != "one\ntwo\n" || at != 1<<62 || !ok {
		t.Errorf("second record = %+v, %v, texts %q at %d, %v", l, err, r.Texts(), at, ok)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) || r.Texts() != nil {
		t.Errorf("the end = %v with texts %q, want io.EOF without any", err, r.Texts())
	}
	for cut := start; cut < len(b); cut++ {
		r := NewLineReader(bytes.NewReader(whole[:cut]))
		_, first := r.Next()
		_, err := r.Next()
		if first != nil || !errors.Is(err, ErrBrokenOff) || r.Texts() != nil {
			t.Fatalf("cut at %d: %v, then %v with texts %q, want that it was broken off", cut, first, err, r.Texts())
		}
	}
}

func FuzzLineReader(f *testing.F) {
	for _, l := range sampleLines()[:3] {
		f.Add(AppendEnd(AppendLine(nil, &l)))
	}
	f.Add(AppendEnd(EndTexts(append(BeginTexts(nil), "a\nb"...), 0, 7)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewLineReader(bytes.NewReader(b))
		for {
			l, err := r.Next()
			if err != nil {
				return
			}
			if texts := r.Texts(); texts != nil {
				again := NewLineReader(bytes.NewReader(EndTexts(append(BeginTexts(nil), texts...), 0, r.place)))
				if _, err := again.Next(); err != nil || !bytes.Equal(again.Texts(), texts) || again.place != r.place {
					t.Fatalf("texts %q at %d read again as %q at %d, %v", texts, r.place, again.Texts(), again.place, err)
				}
			}
			if l == nil {
				continue
			}
			// A line that was read and written again reads the same.
			again, err := NewLineReader(bytes.NewReader(AppendLine(nil, l))).Next()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(l, again); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}
