package smoke

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/ohler55/ojg/jp"
)

func at(path string, want any) JSONCheck {
	return JSONCheck{Path: path, Want: want, expr: jp.MustParseString(path)}
}

func TestVerifyAnswer(t *testing.T) {
	page := answer{
		status: 200, header: http.Header{"Content-Type": {"application/json; charset=utf-8"}},
		body: `{"scope":"admin","users":[{"id":1,"name":"ada"},{"id":2.0,"name":"bob"}],"none":null,"big":9007199254740993}` + "\n",
	}
	text := `{"scope":"admin"}`
	for _, tt := range []struct {
		name string
		in   HTTPCheck
		want string // empty means that it holds
	}{
		{"status", HTTPCheck{Status: []int{200}}, ""},
		{"one of", HTTPCheck{Status: []int{404, 200}}, ""},
		{"other status", HTTPCheck{Status: []int{404, 410}}, "the status is 200, want 404 or 410"},
		{"header", HTTPCheck{Status: []int{200}, Header: map[string]string{"content-type": "application/json"}}, ""},
		{"header in full", HTTPCheck{Status: []int{200}, Header: map[string]string{"Content-Type": "application/json; charset=utf-8"}}, ""},
		{"other header", HTTPCheck{Status: []int{200}, Header: map[string]string{"Content-Type": "text/html"}}, `the header Content-Type is "application/json; charset=utf-8", want "text/html"`},
		{"contains", HTTPCheck{Status: []int{200}, Text: Text{Contains: []string{"ada", "bob"}}}, ""},
		{"contains one only", HTTPCheck{Status: []int{200}, Text: Text{Contains: []string{"ada", "eve"}}}, `the body does not contain "eve"`},
		{"equals", HTTPCheck{Status: []int{200}, Text: Text{Equals: &text}}, "the body is not"},
		{"matches", HTTPCheck{Status: []int{200}, Text: Text{Matches: []*regexp.Regexp{regexp.MustCompile(`"id":\d`)}}}, ""},
		{"matches not", HTTPCheck{Status: []int{200}, Text: Text{Matches: []*regexp.Regexp{regexp.MustCompile(`^x`)}}}, "the body does not match ^x"},
		{"path", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.scope", "admin"), at("$.users[0].id", uint64(1)), at("$.users[1].id", 2)}}, ""},
		{"numbers that a float does not hold", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.big", uint64(9007199254740993))}}, ""},
		{"and not its neighbour", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.big", uint64(9007199254740992))}}, "$.big is 9007199254740993, want 9007199254740992"},
		{"null", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.none", nil)}}, ""},
		{"several", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.users[*].name", []any{"ada", "bob"})}}, ""},
		{"filter", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.users[?(@.id == 1)].name", "ada")}}, ""},
		{"a whole", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.users[0]", map[string]any{"id": 1, "name": "ada"})}}, ""},
		{"nothing there", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.nowhere", "x")}}, `$.nowhere does not exist in the body, want "x"`},
		{"text is no number", HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.users[0].id", "1")}}, `$.users[0].id is 1, want "1"`},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.in.verify(page), tt.want) })
	}
	expect(t, (&HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.a", 1)}}).verify(answer{status: 200, body: "<html>"}), "the body is not JSON")
	expect(t, (&HTTPCheck{Status: []int{200}, JSON: []JSONCheck{at("$.a", 1)}}).verify(answer{status: 200, body: `{"a":1}{}`}), "unexpected data after the JSON value")
}

// expect checks for an error that contains a text, or for no error.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("error = %v, want %q", err, want)
	}
}

func TestVerifyText(t *testing.T) {
	text := "hello"
	expect(t, Text{Equals: &text}.verify("it", "hello\n"), "") // a printed line has a final newline
	expect(t, Text{}.verify("it", "anything"), "")
}

func TestVerifyExit(t *testing.T) {
	expect(t, ExitCheck{}.verify("APP/PROC/WEB: Exited with status 1", "CRASHED"), "")
	expect(t, ExitCheck{Description: "a", Reason: "CRASHED"}.verify("a", "CRASHED"), "")
	expect(t, ExitCheck{Description: "a"}.verify("b", "CRASHED"), `the exit record says "b", want "a"`)
	expect(t, ExitCheck{Reason: "X"}.verify("b", "CRASHED"), `reason is "CRASHED", want "X"`)
}
