package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/logstream"
)

// A page that is written in pieces has the same bytes as json.Encoder produces, for any
// content and number of lines and names.
func TestLogPageBytes(t *testing.T) {
	w := newTestServer(t)
	a := w.createApp("shop <&> \"1\"")
	l := w.log(a.GUID)
	var es []logstream.Envelope
	for i := range 700 {
		es = append(es, logstream.Envelope{
			Source: logstream.Source{Type: []string{"APP/PROC/WEB", "APP/PROC/WEB/SIDECAR/A <B>", "API"}[i%3], Index: i % 5, InstanceID: []string{"", "0123abcd-0123"}[i%2]},
			Stream: logstream.Stream(1 + i%2), Text: []byte(strings.Repeat("\xff\x00é", i%7)),
		})
	}
	for _, i := range []int{3, 400, 401, 402} {
		es[i].Text = bytes.Repeat([]byte{byte(i)}, logstream.MaxLine)
	}
	if err := l.Append(es...); err != nil {
		t.Fatal(err)
	}
	if err := l.Gap(logstream.Source{Type: "CELL"}, "test", 3); err != nil {
		t.Fatal(err)
	}
	all := must(l.NewestOf(t.Context(), 1000, logstream.Filter{}))(t)
	for _, query := range []string{"limit=1", "limit=256", "limit=257", "limit=701", "limit=1000", "limit=1000&descending=true", "limit=300&descending=true"} {
		want := slices.Clone(all)
		if strings.Contains(query, "descending") {
			slices.Reverse(want)
		}
		var limit int
		if _, err := fmt.Sscanf(query, "limit=%d", &limit); err != nil {
			t.Fatal(err)
		}
		got := w.request("GET", "/api/v1/read/"+a.GUID+"?"+query, "").Body.Bytes()
		if expected := encoded(t, w, a, want[:min(limit, len(want))]); !bytes.Equal(got, expected) {
			t.Errorf("?%s differs: %d bytes, want %d", query, len(got), len(expected))
		}
	}
}

// encoded returns a page from json.Encoder.
func encoded(t *testing.T, w *testServer, a v3.App, es []logstream.Envelope) []byte {
	t.Helper()
	form := must(w.s.logs.EnvelopeForm(must(w.s.c.Registry.App(a.GUID))(t)))(t)
	page := v3.LogCacheRead{Envelopes: v3.LogCacheBatch{Batch: []v3.LogCacheEnvelope{}}}
	for _, e := range es {
		v := form.Present(e.Source)
		v.Timestamp, v.Log.Payload, v.Log.Type = e.Time.UnixNano(), e.Text, e.Stream.String()
		page.Envelopes.Batch = append(page.Envelopes.Batch, v)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(page); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
