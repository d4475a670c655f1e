package inbound_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/inbound"
)

// body has the parts that bodies of requests have: fields, maps with any keys, raw
// parts and embedded structs.
type body struct {
	Name     string            `json:"name"`
	Count    int               `json:"count"`
	Labels   map[string]string `json:"labels"`
	Var      map[string]any    `json:"var"`
	Raw      json.RawMessage   `json:"raw"`
	Any      any               `json:"any"`
	List     []item            `json:"list"`
	Pointer  *item             `json:"pointer"`
	embedded                   // its fields are on the same level
}

type item struct {
	GUID string `json:"guid"`
}

type embedded struct {
	Space item `json:"space"`
}

func TestJSON(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"any":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	for _, tt := range []struct {
		body string
		want error
		says string
	}{
		{`{"name":"a","count":1,"labels":{"a":"1","A":"2"},"list":[{"guid":"x"},{"guid":"x"}]}`, nil, ""},
		{` {"unknown":{"a":1}} `, nil, ""},
		{`null`, nil, ""},
		{`{"NAME":"a"}`, nil, ""}, // accepted, as by encoding/json
		{`{"name":1}`, nil, ""},   // the decoder reports the error
		{`{"name":"\ud83d\ude00 \ufffd ` + "\ufffd" + `"}`, nil, ""},
		{`{"var":{"Path":1,"PATH":2}}`, nil, ""},

		{`{"name":"a","name":"b"}`, inbound.ErrDuplicateKey, `duplicate key "name"`},
		{`{"name":"a","name":"a"}`, inbound.ErrDuplicateKey, `duplicate key "name"`},
		{`{"name":"a","n\u0061me":"b"}`, inbound.ErrDuplicateKey, `duplicate key "name"`},
		{`{"name":"a","NAME":"b"}`, inbound.ErrDuplicateKey, `duplicate key "NAME"`},
		{`{"labels":{"a":"1","a":"2"}}`, inbound.ErrDuplicateKey, `duplicate key "a"`},
		{`{"raw":{"a":{"b":1,"b":2}}}`, inbound.ErrDuplicateKey, `duplicate key "b"`},
		{`{"any":[{"b":1,"b":2}]}`, inbound.ErrDuplicateKey, `duplicate key "b"`},
		{`{"list":[{"guid":"x","Guid":"y"}]}`, inbound.ErrDuplicateKey, `duplicate key "Guid"`},
		{`{"pointer":{"guid":"x","guid":"y"}}`, inbound.ErrDuplicateKey, `duplicate key "guid"`},
		{`{"space":{},"Space":{}}`, inbound.ErrDuplicateKey, `duplicate key "Space"`},
		{`{"unknown":1,"unknown":2}`, inbound.ErrDuplicateKey, `duplicate key "unknown"`},
		{`{"unknown":{"a":1,"a":2}}`, inbound.ErrDuplicateKey, `duplicate key "a"`},
		{`{"count":"x","name":"a","name":"b"}`, inbound.ErrDuplicateKey, `duplicate key "name"`}, // after a wrong type

		{"{\"name\":\"\xff\"}", inbound.ErrUTF8, ""},
		{"{\"\xff\":1}", inbound.ErrUTF8, ""},
		{"{\"labels\":{\"a\xc3\":\"1\"}}", inbound.ErrUTF8, ""},
		{"{\"raw\":{\"a\":\"\xed\xa0\x80\"}}", inbound.ErrUTF8, ""},
		{`{"name":"\ud800"}`, inbound.ErrUTF8, ""},
		{`{"name":"\udc00x"}`, inbound.ErrUTF8, ""},
		{`{"name":"\ud800\ud800"}`, inbound.ErrUTF8, ""},
		{`{"any":["\uDFFF"]}`, inbound.ErrUTF8, ""},
		{"{\"count\":\"x\",\"name\":\"\xff\"}", inbound.ErrUTF8, ""},

		{``, inbound.ErrSyntax, ""},
		{`{"name":}`, inbound.ErrSyntax, ""},
		{`{"name":"a"} x`, inbound.ErrSyntax, ""},
		{`{"count":"x"}{}`, inbound.ErrSyntax, ""},
		{deep(9_000), nil, ""},
		{deep(20_000), inbound.ErrSyntax, ""},
	} {
		var v body
		err := inbound.JSON([]byte(tt.body), &v)
		if !errors.Is(err, tt.want) || tt.says != "" && err.Error() != tt.says {
			t.Errorf("%.80q: error = %v, want %v %s", tt.body, err, tt.want, tt.says)
		}
		if diff := cmp.Diff(v, body{}, cmp.AllowUnexported(body{})); diff != "" {
			t.Errorf("%.80q: the check changed the value:\n%s", tt.body, diff)
		}
	}
}

// Accepted input is accepted by encoding/json, with no text changed and no key lost.
// Refused input is not JSON, or has one of the two errors.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","count":1,"labels":{"a":"1","A":"2"},"list":[{"guid":"x"}],"raw":[1,2],"any":{"b":[]},"space":{"guid":"s"}}`,
		`{"name":"a","NAME":"b"}`, `{"any":{"a":1,"a":2}}`, "{\"name\":\"\xff\"}", `{"name":"\ud800"}`, `{"count":"x"}`, `[]`, `null`, `{"name":"a"}x`, `{"nAme":"","NAME"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v body
		err := inbound.JSON(raw, &v)
		if valid := json.Valid(raw); !valid && err == nil || valid && errors.Is(err, inbound.ErrSyntax) {
			t.Fatalf("%q: error = %v, valid JSON = %t", raw, err, valid)
		}
		if err != nil {
			return
		}
		var tree any
		if err := json.Unmarshal(raw, &tree); err != nil {
			t.Fatalf("%q was accepted and cannot be decoded: %v", raw, err)
		}
		// Encoded and decoded again it is the same: no key was lost, no text changed.
		again, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if err := inbound.JSON(again, &tree); err != nil {
			t.Fatalf("%q: %v", again, err)
		}
		if got, want := count(tree), tokens(raw); got != want {
			t.Fatalf("%q: %d keys and values, %d were sent", raw, got, want)
		}
		if strings.ContainsRune(string(again), '\uFFFD') && !strings.ContainsRune(string(raw), '\uFFFD') && !strings.Contains(strings.ToLower(string(raw)), `\ufffd`) {
			t.Fatalf("%q: a text was changed: %q", raw, again)
		}
	})
}

// count returns the number of values in a tree.
func count(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, one := range v {
			n += count(one)
		}
	case []any:
		for _, one := range v {
			n += count(one)
		}
	}
	return n
}

// tokens returns the number of values in a text.
func tokens(raw []byte) (n int) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	var inObject []bool
	key := false
	for {
		tok, err := d.Token()
		if err != nil {
			return n
		}
		object := len(inObject) > 0 && inObject[len(inObject)-1]
		switch tok {
		case json.Delim('}'), json.Delim(']'):
			inObject = inObject[:len(inObject)-1]
			key = len(inObject) > 0 && inObject[len(inObject)-1]
			continue
		}
		if object && key {
			key = false
			continue
		}
		n++
		key = object
		if tok == json.Delim('{') || tok == json.Delim('[') {
			inObject = append(inObject, tok == json.Delim('{'))
			key = tok == json.Delim('{')
		}
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"/v3/apps?names=a%C3%A9,b": true, "/v3/apps/%E2%82%AC": true, "/v3/apps?names=%EF%BF%BD": true,
		"/v3/apps?names=%FF": false, "/v3/apps?%FF=a": false, "/v3/apps/%FF": false, "/v3/apps/%ED%A0%80": false, "/v3/apps?names=a&names=%C3": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := inbound.URL(u); (err == nil) != ok || err != nil && !errors.Is(err, inbound.ErrUTF8) {
			t.Errorf("%s: error = %v, want one: %t", text, err, !ok)
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	var list strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&list, `{"guid":"%036d"},`, i)
	}
	for name, raw := range map[string]string{
		"small": `{"name":"shop","labels":{"a":"1"},"space":{"guid":"x"}}`,
		"5MB":   `{"list":[` + strings.TrimSuffix(list.String(), ",") + `]}`,
	} {
		b.Run(name+"/check", func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if err := inbound.JSON([]byte(raw), new(body)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/valid", func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				json.Valid([]byte(raw))
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if err := json.Unmarshal([]byte(raw), new(body)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
