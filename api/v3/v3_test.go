package v3_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/api/v3"
)

// The JSON of an empty resource: lists that clients iterate over are never null.
// Optional values are null or absent, as clients expect.
func TestShapes(t *testing.T) {
	at := v3.At(time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600)))
	n := v3.Int(2)
	for want, v := range map[string]any{
		`"2026-01-02T02:04:05Z"`:         at,
		`{"data":null}`:                  v3.To(""),
		`{"data":{"guid":"g"}}`:          v3.To("g"),
		`{"instances":2}`:                v3.Scale{Instances: &n},
		`{"command":null}`:               v3.UpdateProcess{Command: v3.SetNull[string]()},
		`{"command":"./run"}`:            v3.UpdateProcess{Command: v3.Set("./run")},
		`{}`:                             v3.UpdateProcess{},
		`{"labels":{},"annotations":{}}`: v3.NoMetadata(),
		`{"op":"add","path":"/applications/0/memory","value":"64M"}`:           v3.Difference{Op: "add", Path: "/applications/0/memory", Value: "64M"},
		`{"path":"a","mode":"644","checksum":{"value":"x"},"size_in_bytes":3}`: v3.Resource{Path: "a", Mode: "644", Checksum: v3.Checksum{Value: "x"}, Size: 3},
		`{"timestamp":"12","source_id":"a","instance_id":"0","tags":{"source_type":"STG"},"log":{"payload":"aGk=","type":"OUT"}}`: v3.LogCacheEnvelope{
			Timestamp: 12, SourceID: "a", InstanceID: "0", Tags: map[string]string{"source_type": "STG"}, Log: &v3.LogCacheLog{Payload: []byte("hi"), Type: "OUT"},
		},
	} {
		b, err := json.Marshal(v)
		if err != nil || string(b) != want {
			t.Errorf("got %s, %v, want %s", b, err, want)
		}
	}
}

func TestNullable(t *testing.T) {
	for text, want := range map[string]v3.Nullable[v3.Int]{
		`{}`:                    {},
		`{"memory_in_mb":null}`: {Given: true, Null: true},
		`{"memory_in_mb":64}`:   {Given: true, Value: 64},
		`{"memory_in_mb":"64"}`: {Given: true, Value: 64},
	} {
		var u v3.UpdateSidecar
		if err := json.Unmarshal([]byte(text), &u); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if u.MemoryInMB != want {
			t.Errorf("%s: %+v", text, u.MemoryInMB)
		}
	}
	for _, text := range []string{`{"memory_in_mb":"64M"}`, `{"memory_in_mb":1.5}`, `{"memory_in_mb":{}}`, `{"memory_in_mb":true}`} {
		if err := json.Unmarshal([]byte(text), new(v3.UpdateSidecar)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

func TestLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	for want, l := range map[string]v3.Line{
		`{"seq":7,"time":"2026-01-02T03:04:05.000000678Z","source":"APP/PROC/WEB","index":1,"instance":"i","stream":"ERR","flags":["late"],"text":"h\u003ci"}`: {
			Seq: 7, Time: at, Source: "APP/PROC/WEB", Index: 1, Instance: "i", Stream: "ERR", Flags: []string{v3.FlagLate}, Text: []byte("h<i"),
		},
		`{"seq":8,"time":"2026-01-02T03:04:05.000000678Z","source":"API","index":0,"stream":"OUT","text":"/w==","encoding":"base64"}`: {
			Seq: 8, Time: at, Source: "API", Stream: "OUT", Text: []byte{0xff},
		},
	} {
		b, err := json.Marshal(l)
		if err != nil || string(b) != want {
			t.Errorf("got %s, %v, want %s", b, err, want)
		}
		var back v3.Line
		if err := json.Unmarshal(b, &back); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(l, back); diff != "" {
			t.Errorf("another line came back (-want +got):\n%s", diff)
		}
	}
	for _, text := range []string{`{"text":"%","encoding":"base64"}`, `{"text":"","encoding":"rot13"}`, `{"seq":-1}`} {
		if err := json.Unmarshal([]byte(text), new(v3.Line)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add(`{"seq":1,"text":"/w==","encoding":"base64"}`)
	f.Add(`{"seq":1,"time":"2026-01-02T03:04:05Z","flags":["gap"],"text":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var l, back v3.Line
		if json.Unmarshal([]byte(text), &l) != nil {
			return
		}
		b, err := json.Marshal(l)
		if err != nil {
			return // a year that RFC 3339 does not have
		}
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%s cannot be read back: %v", b, err)
		}
		if string(back.Text) != string(l.Text) || back.Seq != l.Seq {
			t.Errorf("%s became %+v", text, back)
		}
	})
}

func FuzzScale(f *testing.F) {
	f.Add(`{"instances":"2","memory_in_mb":64}`)
	f.Add(`{"instances":1e3}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s v3.Scale
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back v3.Scale
		if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(s, back) {
			t.Errorf("%s became %s, %v", text, b, err)
		}
	})
}

// Field names on the wire follow Cloud Foundry: lower case and underscores.
func TestFieldNames(t *testing.T) {
	for _, v := range []any{
		v3.App{},
		v3.Process{},
		v3.InstanceStats{},
		v3.Sidecar{},
		v3.Package{},
		v3.Build{},
		v3.Droplet{},
		v3.Route{},
		v3.Space{},
		v3.Organization{},
		v3.Domain{},
		v3.Job{},
		v3.Event{},
		v3.Env{},
		v3.Root{},
		v3.LogCacheRead{},
		v3.GatewayBatch{},
		v3.PromQLResponse{},
		v3.Crash{},
		v3.Status{},
		v3.Buildpack{},
		v3.Stack{},
		v3.FeatureFlag{},
		v3.CreateRoute{},
		v3.UpdateRoute{},
		v3.Reservation{},
		v3.Permissions{},
	} {
		checkNames(t, reflect.TypeOf(v), map[reflect.Type]bool{})
	}
}

func checkNames(t *testing.T, typ reflect.Type, seen map[reflect.Type]bool) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || seen[typ] || !strings.Contains(typ.PkgPath(), "api/v3") || typ == reflect.TypeFor[v3.Time]() {
		return
	}
	seen[typ] = true
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if typ == reflect.TypeFor[v3.PromQLData]() {
			continue // the names are those of Prometheus
		}
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != "" {
			t.Errorf("%s.%s is %q on the wire", typ, f.Name, name)
		}
		checkNames(t, f.Type, seen)
	}
}
