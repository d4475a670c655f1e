package logstream

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"
)

const (
	benchLines = 200_000
	benchLine  = 100
)

func benchText() []byte {
	return bytes.Repeat(append(bytes.Repeat([]byte("x"), benchLine-1), '\n'), benchLines)
}

// BenchmarkTail measures the throughput from the capture file to the segments. It
// compares it with a plain copy of the same file and reports the ratio.
func BenchmarkTail(b *testing.B) {
	text := benchText()
	var tail, plain time.Duration
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tail += benchTail(b, text)
		plain += benchCopy(b, text)
	}
	lines := float64(benchLines) * float64(b.N)
	b.ReportMetric(lines/tail.Seconds(), "lines/s")
	b.ReportMetric(lines/plain.Seconds(), "copied-lines/s")
	b.ReportMetric(tail.Seconds()/plain.Seconds(), "times-the-copy")
}

// benchTail times Tail, including reading and Append, until all lines are in the log.
func benchTail(b *testing.B, text []byte) time.Duration {
	b.Helper()
	ls, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	l := newApp(b, ls)
	f := capture(b, l, Out)
	put(b, f, string(text))
	begin := time.Now()
	last, err := follow(b, l, Capture{}).Finish(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Append(last...); err != nil {
		b.Fatal(err)
	}
	took := time.Since(begin)
	if l.LastSeq() != benchLines {
		b.Fatalf("%d lines in the log", l.LastSeq())
	}
	if err := ls.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}

// benchCopy times reading the same bytes and writing them to another file, with
// reads of the same size.
func benchCopy(b *testing.B, text []byte) time.Duration {
	b.Helper()
	from, to := filepath.Join(b.TempDir(), "from"), filepath.Join(b.TempDir(), "to")
	if err := os.WriteFile(from, text, 0o600); err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	in, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	out, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	// Hide ReadFrom, so that the copy goes through user memory as Tail does.
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, readSize)); err != nil {
		b.Fatal(err)
	}
	took := time.Since(begin)
	if err := in.Close(); err != nil {
		b.Fatal(err)
	}
	if err := out.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkAppend measures appending one line at a time, as a quiet process prints.
func BenchmarkAppend(b *testing.B) {
	l := newApp(b, newLogs(b, b.TempDir(), Options{}))
	for b.Loop() {
		if err := l.Append(line("a line of a quiet process")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCursor measures reading a log from its first line.
func BenchmarkCursor(b *testing.B) {
	l := newApp(b, newLogs(b, b.TempDir(), Options{}))
	text := bytes.Repeat([]byte("x"), benchLine-1)
	es := make([]Envelope, 1000)
	for range 100 {
		for i := range es {
			es[i] = Envelope{Source: web("i-1"), Stream: Out, Text: text}
		}
		if err := l.Append(es...); err != nil {
			b.Fatal(err)
		}
	}
	lines := 0
	for b.Loop() {
		for cur := l.Cursor(0); cur.next <= l.LastSeq(); {
			es, err := cur.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			lines += len(es)
		}
	}
	b.ReportMetric(float64(lines)/b.Elapsed().Seconds(), "lines/s")
}

// BenchmarkOpen measures the recovery time of a full last segment.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	ls := newLogs(b, dir, Options{})
	l := newApp(b, ls)
	for i := range 70 {
		if err := l.Append(bulk(i, 1000)...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		again, err := openLog(ls, l.dir)
		if err != nil {
			b.Fatal(err)
		}
		if err := again.close(); err != nil {
			b.Fatal(err)
		}
	}
}

func bulk(round, n int) []Envelope {
	es := make([]Envelope, n)
	at := int64(round * n * benchLine)
	for i := range es {
		es[i] = Envelope{Source: web("i-1"), Exec: "main", Stream: Out, Text: fmt.Appendf(nil, "%099d", i), From: at, To: at + benchLine}
		at += benchLine
	}
	return es
}

// BenchmarkLive measures the latency of one line from the capture file to a waiting
// reader.
func BenchmarkLive(b *testing.B) {
	l := newApp(b, newLogs(b, b.TempDir(), Options{}))
	f := capture(b, l, Out)
	follow(b, l, Capture{})
	cur := l.Cursor(0)
	for b.Loop() {
		put(b, f, "a line of a quiet process\n")
		if _, err := cur.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTailMemory measures the daemon's memory per instance of three processes that
// print nothing.
func BenchmarkTailMemory(b *testing.B) {
	const instances, execs = 200, 3
	measure := func() int {
		var m goruntime.MemStats
		for range 3 { // sync.Pool frees its memory in steps.
			goruntime.GC()
		}
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	for b.Loop() {
		l := newApp(b, newLogs(b, b.TempDir(), Options{}))
		cur := l.Cursor(0)
		before := measure()
		tailMany(b, l, instances, execs)
		take(b, cur, instances*execs)
		b.ReportMetric(float64(measure()-before)/instances, "B/instance")
	}
}
