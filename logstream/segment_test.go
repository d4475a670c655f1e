package logstream

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func web(instance string) Source {
	return Source{Type: "APP/PROC/WEB", Index: 3, InstanceID: instance}
}

// sampleLines hold every kind of record: platform lines, consecutive ranges, a jump, a
// cut line, a partial line and an empty line.
func sampleLines() []Envelope {
	a, b := web("i-1"), Source{Type: "APP/PROC/WEB/SIDECAR/CONFIG SERVER", InstanceID: "i-1"}
	return []Envelope{
		{Source: Source{Type: "API"}, Stream: Out, Text: []byte("hello")},
		{Source: a, Stream: Out, Exec: "main", Text: []byte("one"), From: 0, To: 4},
		{Source: a, Stream: Out, Exec: "main", Text: []byte("two\x00\xff"), From: 4, To: 10},
		{Source: b, Stream: Err, Exec: "sidecar-0", Text: []byte{}, From: 7, To: 8},
		{Source: a, Stream: Err, Exec: "main", Text: []byte("long"), From: 0, To: 4, Flags: Cut},
		{Source: a, Stream: Err, Exec: "main", Text: []byte("er"), From: 4, To: 7, Flags: Late},
		{Source: a, Stream: Out, Exec: "main", Text: []byte("end"), From: 1 << 40, To: 1<<40 + 3, Flags: Partial},
		{Source: Source{Type: "CELL", Index: -1}, Stream: Err, Text: []byte("gone"), Flags: Gap},
		{Source: a, Stream: Err, Exec: "main", Text: []byte("over"), From: 7, To: 999, Flags: Gap, Lost: &Loss{Lines: 3, Bytes: 992, Cause: LostRate}},
	}
}

func TestBatchRoundTrip(t *testing.T) {
	enc, dec := newEncoder(), decoder{}
	clock := stamper{last: 41, now: 1_000_000}
	first := uint64(7)
	for round := range 3 { // the dictionary continues from frame to frame
		es := sampleLines()
		b, err := enc.batch(nil, first, clock, es)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := framePayload(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := dec.batch(payload, nil)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for i := range es {
			es[i].Seq = first + uint64(i)
			es[i].Time = time.Unix(0, clock.stamp(es[i].Time)).UTC()
		}
		if diff := cmp.Diff(es, got); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", round, diff)
		}
		first += uint64(len(es))
	}
}

// A line of a busy process costs at most 6 bytes in addition to its text.
func TestRecordOverhead(t *testing.T) {
	var es []Envelope
	var text, at int64
	for range 1000 {
		line := bytes.Repeat([]byte("x"), 100)
		es = append(es, Envelope{Source: web("i-1"), Stream: Out, Exec: "main", Text: line, From: at, To: at + 101})
		at += 101
		text += 100
	}
	b, err := newEncoder().batch(nil, 1, stamper{now: time.Now().UnixNano()}, es)
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(int64(len(b))-text) / float64(len(es)); got > 6 {
		t.Errorf("overhead = %.1f bytes a line, want at most 6", got)
	}
}

// After a failed write, a reader that never saw the failed frame can read the next one.
func TestEncoderRollback(t *testing.T) {
	enc, dec := newEncoder(), decoder{}
	es := sampleLines()
	good := func(part []Envelope) {
		t.Helper()
		b, err := enc.batch(nil, 1, stamper{}, part)
		if err != nil {
			t.Fatal(err)
		}
		payload, _ := framePayload(b)
		got, err := dec.batch(payload, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i].From != part[i].From || got[i].To != part[i].To || got[i].Source != part[i].Source {
				t.Errorf("got %+v, want %+v", got[i], part[i])
			}
		}
	}
	good(es[:2])
	if _, err := enc.batch(nil, 1, stamper{}, es); err != nil {
		t.Fatal(err)
	}
	enc.rollback()
	good(es[2:])
}

func TestHeader(t *testing.T) {
	b := appendHeader(nil, 99)
	if len(b) != headerSize {
		t.Fatalf("header has %d bytes, want %d", len(b), headerSize)
	}
	if first, _, err := readHeader(b); err != nil || first != 99 {
		t.Errorf("readHeader = %d, %v", first, err)
	}
	newer := bytes.Clone(b)
	newer[8]++
	if _, _, err := readHeader(newer); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("newer format: err = %v, want ErrNewerFormat", err)
	}
	for i := range 24 {
		bad := bytes.Clone(b)
		bad[i] ^= 0x40
		if _, _, err := readHeader(bad); err == nil {
			t.Errorf("a header with byte %d changed was taken", i)
		}
	}
}

func TestCheckpointRoundTrip(t *testing.T) {
	want := checkpoint{Next: 12, Last: -5, Boot: "b", Offsets: map[streamKey]int64{
		{"i-1", "main", Out}: 1 << 33, {"i-1", "main", Err}: 0,
	}}
	b, err := appendCheckpoint(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := framePayload(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeCheckpoint(payload, segmentFormat)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSegmentName(t *testing.T) {
	for name, want := range map[string]uint64{
		segmentName(1): 1, segmentName(1 << 63): 1 << 63, "7.seg": 7, "x.seg": 0, "0.seg": 0, "capture": 0, "00000000000000000001.seg.damaged": 0,
	} {
		if got, ok := segmentFirst(name); (ok && got != want) || ok != (want > 0) {
			t.Errorf("segmentFirst(%q) = %d, %v, want %d", name, got, ok, want)
		}
	}
}

// Times always increase, whatever the clock and the caller say.
func TestStamp(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(0, n) }
	for _, c := range []struct {
		name string
		s    stamper
		t    time.Time
		want int64
	}{
		{"now", stamper{last: 5, now: 10}, time.Time{}, 10},
		{"clock stood", stamper{last: 10, now: 10}, time.Time{}, 11},
		{"clock went back", stamper{last: 50, now: 10}, time.Time{}, 51},
		{"own time", stamper{last: 5, now: 10}, at(7), 7},
		{"own time too old", stamper{last: 5, now: 10}, at(3), 6},
		{"own time to come", stamper{last: 5, now: 10}, at(99), 10},
	} {
		if got := c.s.stamp(c.t); got != c.want || c.s.last != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	b, err := newEncoder().batch(nil, 1, stamper{now: 5}, sampleLines())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-1])
	cp, err := appendCheckpoint(nil, checkpoint{Next: 3, Offsets: map[streamKey]int64{{"i", "main", Out}: 9}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cp)
	f.Fuzz(func(t *testing.T, b []byte) {
		// Once as a frame, once as a payload whose checksum is right by chance.
		r := segmentReader{f: bytes.NewReader(b), end: int64(len(b))}
		if payload, err := r.next(); err == nil && r.pos != int64(len(payload)+frameHead) {
			t.Errorf("reader is at %d after a payload of %d", r.pos, len(payload))
		}
		var dec decoder
		es, err := dec.batch(b, nil)
		for _, e := range es {
			if e.To < e.From || e.From < 0 || len(e.Text) > len(b) {
				t.Errorf("impossible line %+v", e)
			}
		}
		if err == nil && len(es) > 0 {
			reencode(t, es)
		}
		if cp, err := decodeCheckpoint(b, segmentFormat); err == nil && len(cp.Offsets) > len(b) {
			t.Errorf("%d offsets in %d bytes", len(cp.Offsets), len(b))
		}
	})
}

// reencode checks that lines that were read can be written and read again.
func reencode(t *testing.T, es []Envelope) {
	t.Helper()
	b, err := newEncoder().batch(nil, es[0].Seq, stamper{last: es[0].Time.UnixNano() - 1, now: 1 << 62}, es)
	if err != nil {
		return
	}
	payload, err := framePayload(b)
	if err != nil {
		t.Fatal(err)
	}
	var dec decoder
	got, err := dec.batch(payload, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range es {
		if !bytes.Equal(got[i].Text, es[i].Text) || got[i].From != es[i].From || got[i].To != es[i].To {
			t.Errorf("line %d: %+v, want %+v", i, got[i], es[i])
		}
	}
}
