package logs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/logstream"
)

// logPage is the body of a log-cache read. It is written in pieces, so that many
// clients that poll or read slowly use little memory.
type logPage struct {
	form   envelopeForm
	c      *logstream.Cursor    // source of the lines, if not nil
	rest   []logstream.Envelope // otherwise the lines after Lines
	Lines  []logstream.Envelope // the next lines to write
	left   int                  // how many more lines can be read
	newest lineTime             // newest line written so far
}

const (
	pageHead  = `{"envelopes":{"batch":[`
	pageTail  = "]}}\n"   // with the newline that json.Encoder adds
	pageSize  = 64 << 10  // minimum size of one write
	pageLines = 128       // lines encoded together
	keptPage  = 256 << 10 // a larger buffer is not reused
)

var pageBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Next reads the next lines. After the last line it sets none.
func (p *logPage) Next(ctx context.Context) error {
	p.Lines = nil
	if p.c == nil {
		n := min(len(p.rest), pageLines)
		p.Lines, p.rest = p.rest[:n], p.rest[n:]
	}
	for p.c != nil && p.left > 0 && len(p.Lines) == 0 {
		es, err := nextLines(ctx, &p.c)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		p.Lines = es[:min(len(es), p.left)]
		p.left -= len(p.Lines)
	}
	if p.c != nil && len(p.Lines) == 0 {
		p.c.Release()
	}
	return nil
}

// write writes the body. It holds one buffer while it waits for the client.
func (p *logPage) write(ctx context.Context, w io.Writer) error {
	buf := pageBuffers.Get().(*[]byte)
	b := append((*buf)[:0], pageHead...)
	defer func() {
		if *buf = b; cap(b) <= keptPage {
			pageBuffers.Put(buf)
		}
	}()
	for first := true; len(p.Lines) > 0; first = false {
		if !first {
			b = append(b, ',')
		}
		var err error
		if b, err = p.encode(b); err != nil {
			return err
		}
		if len(b) >= pageSize {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		if err := p.Next(ctx); err != nil {
			return err
		}
	}
	b = append(b, pageTail...)
	_, err := w.Write(b)
	return err
}

// encode appends the current lines, separated by commas, and releases them.
func (p *logPage) encode(b []byte) ([]byte, error) {
	for i := range p.Lines {
		e := &p.Lines[i]
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = p.form.append(b, e); err != nil {
			return b, err
		}
		if p.newest.seq < e.Seq {
			p.newest = lineTime{seq: e.Seq, time: e.Time.UnixNano()}
		}
	}
	if p.c != nil {
		p.c.Release()
	}
	return b, nil
}

// envelopeForm encodes the envelopes of an app's lines. All fields except the time, the
// stream and the text are the same for all lines of a source. The names in them are the
// current ones, even for lines from before a rename.
type envelopeForm struct {
	app       app.App
	common    map[string]string
	processes map[string]app.Process      // by type in upper case, as in sources
	made      map[logstream.Source][]byte // the bytes between time and text
	gateway   bool                        // in the form of the log stream gateway
}

// EnvelopeForm returns the encoder for the lines of an app.
func (h *Handlers) EnvelopeForm(a app.App) (envelopeForm, error) {
	f := envelopeForm{
		app: a, processes: map[string]app.Process{}, made: map[logstream.Source][]byte{},
		common: map[string]string{"app_id": a.GUID, "app_name": a.Name, "space_id": a.Space, "origin": "rep"},
	}
	ps, err := h.Platform.Registry.Processes(a.GUID)
	if err != nil {
		return f, err
	}
	for _, p := range ps {
		f.processes[strings.ToUpper(p.Type)] = p
	}
	space, err := h.Platform.Registry.Space(a.Space)
	if err != nil {
		return f, nil // an app without a space lacks these tags
	}
	f.common["space_name"], f.common["organization_id"] = space.Name, space.Org
	if org, err := h.Platform.Registry.Org(space.Org); err == nil {
		f.common["organization_name"] = org.Name
	}
	return f, nil
}

// append appends the envelope of a line, with the same bytes that json.Encoder would
// produce.
func (f envelopeForm) append(b []byte, e *logstream.Envelope) ([]byte, error) {
	middle, ok := f.made[e.Source]
	if !ok {
		var err error
		if middle, err = f.middle(e.Source); err != nil {
			return b, err
		}
		f.made[e.Source] = middle
	}
	b = append(b, EnvelopeHead...)
	b = strconv.AppendInt(b, e.Time.UnixNano(), 10)
	b = append(b, middle...)
	b = base64.StdEncoding.AppendEncode(b, e.Text)
	b = append(b, envelopeType...)
	b = append(b, e.Stream.String()...)
	return append(b, envelopeTail...), nil
}

const (
	// EnvelopeHead is the start of every envelope.
	EnvelopeHead = `{"timestamp":"`
	envelopeType = `","type":"`
	envelopeTail = `"}}`
)

// middle encodes an envelope without time and text, and removes the parts around them.
func (f envelopeForm) middle(src logstream.Source) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	var v any = f.Present(src)
	if f.gateway {
		v = gatewayEnvelope(f.Present(src))
	}
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("cannot encode an envelope: %w", err)
	}
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(b.Bytes()), []byte(EnvelopeHead+"0"))
	middle, too := bytes.CutSuffix(rest, []byte(envelopeType+envelopeTail))
	if !ok || !too {
		return nil, fmt.Errorf("cannot find the time and the text in the envelope %s", &b)
	}
	return middle, nil
}

// Present returns the envelope of an empty line.
func (f envelopeForm) Present(src logstream.Source) v3.LogCacheEnvelope {
	index := strconv.Itoa(src.Index)
	tags := map[string]string{"source_type": src.Type, "instance_id": index}
	maps.Copy(tags, f.common)
	if p, ok := f.processes[processType(src.Type)]; ok {
		tags["process_id"], tags["process_type"] = p.GUID, p.Type
	}
	if src.InstanceID != "" {
		tags["instance_guid"] = src.InstanceID
	}
	return v3.LogCacheEnvelope{SourceID: f.app.GUID, InstanceID: index, Tags: tags, Log: &v3.LogCacheLog{Payload: []byte{}}}
}

// processType returns the type in APP/PROC/<TYPE>, even for the source of a sidecar.
func processType(source string) string {
	rest, ok := strings.CutPrefix(source, "APP/PROC/")
	if !ok {
		return ""
	}
	kind, _, _ := strings.Cut(rest, "/")
	return kind
}
