package smoke

import (
	"encoding/xml"
	"regexp"
	"strings"
	"testing"
	"time"
)

// hostile is text that XML cannot contain unchanged.
const hostile = "a\x00b\x1b[31mc\xff\xfed ]]> <&>\"' \u2028 \ufffe end\n"

func sampleReport() Report {
	return Report{Status: 8, Began: time.Unix(0, 0), Took: seconds(3 * time.Second), Folders: []Result{
		{Folder: "examples/a", Began: time.Unix(1, 0), Took: seconds(1500 * time.Millisecond), TestSpace: TestSpace{Org: "smoke-1", Space: "smoke"}, Log: hostile, Status: 8, Steps: []Step{
			{Name: "push", Kind: KindPush, State: StateOK, Took: seconds(time.Second)},
			{Name: "GET " + hostile, Kind: KindCheck, App: "shop", State: StateFailed, Status: StatusAssertion, Detail: "the body is " + hostile, Todo: "mend it", Output: hostile},
			{Name: "kill", Kind: KindCheck, State: StateSkipped},
		}},
		{Folder: ".", Began: time.Unix(2, 0), Steps: []Step{{Name: "push", Kind: KindPush, State: StateOK}}},
	}}
}

// The report meets the expectations of JUnit readers: well-formed, elements in order,
// required attributes, numbers that add up.
func TestJUnit(t *testing.T) {
	text := sampleReport().JUnit()
	checkWellFormed(t, text)
	var got junitSuites
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(got.Suites) != 2 || got.Tests != 4 || got.Failures != 1 || got.Skipped != 1 || got.Errors != 0 || got.Time != "3.000" {
		t.Errorf("suites = %+v", got)
	}
	for i, s := range got.Suites {
		checkSuite(t, i, s)
	}
	f := got.Suites[0].Cases[1].Failure
	if f == nil || f.Type != "assertion" || !strings.Contains(f.Message, "the body is a\ufffdb") || !strings.Contains(f.Text, "mend it\na\ufffdb\ufffd[31mc\ufffd\ufffdd ]]> <&>\"'") {
		t.Errorf("failure = %+v", f)
	}
	if out := got.Suites[0].Out.Text; !strings.Contains(out, "]]> <&>") {
		t.Errorf("system-out = %q", out)
	}
	if got.Suites[1].Package != "smoke" || got.Suites[0].Package != "smoke.examples.a" {
		t.Errorf("packages = %q, %q", got.Suites[0].Package, got.Suites[1].Package)
	}
}

var (
	number    = regexp.MustCompile(`^\d+\.\d+$`)
	timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$`)
)

// checkSuite checks a suite against the rules of the commonly used schema.
func checkSuite(t *testing.T, i int, s junitSuite) {
	t.Helper()
	if s.ID != i || s.Name == "" || s.Package == "" || s.Hostname == "" || !timestamp.MatchString(s.Timestamp) || !number.MatchString(s.Time) {
		t.Errorf("suite %d = %+v", i, s)
	}
	failures, skipped := 0, 0
	for _, c := range s.Cases {
		if c.Name == "" || c.Class == "" || !number.MatchString(c.Time) || c.Failure != nil && c.Skipped != nil {
			t.Errorf("case = %+v", c)
		}
		if c.Failure != nil {
			failures++
		}
		if c.Skipped != nil {
			skipped++
		}
	}
	if s.Tests != len(s.Cases) || s.Failures != failures || s.Skipped != skipped {
		t.Errorf("suite %d counts %d, %d, %d and has %d, %d, %d", i, s.Tests, s.Failures, s.Skipped, len(s.Cases), failures, skipped)
	}
}

// checkWellFormed reads every token, and checks the order of the elements of a suite.
func checkWellFormed(t *testing.T, text []byte) {
	t.Helper()
	order := map[string]int{"properties": 0, "testcase": 1, "system-out": 2, "system-err": 3}
	dec := xml.NewDecoder(strings.NewReader(string(text)))
	var path []string
	last := 0
	for {
		tok, err := dec.Token()
		if tok == nil {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			path = append(path, tok.Name.Local)
			if tok.Name.Local == "testsuite" {
				last = 0
			}
			place, known := order[tok.Name.Local]
			if len(path) == 3 && (!known || place < last) {
				t.Errorf("%s stands in a wrong place", strings.Join(path, ">"))
			}
			if len(path) == 3 {
				last = place
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		}
	}
	if len(path) > 0 {
		t.Errorf("%v is open at the end", path)
	}
}

func FuzzJUnit(f *testing.F) {
	f.Add(hostile, hostile)
	f.Add("]]>", "\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, name, text string) {
		r := Report{Folders: []Result{{Folder: name, Log: text, Steps: []Step{{Name: name, State: StateFailed, Detail: text, Output: text}}}}}
		var got junitSuites
		if err := xml.Unmarshal(r.JUnit(), &got); err != nil {
			t.Fatalf("%v\n%s", err, r.JUnit())
		}
		// XML readers see only one kind of line ending.
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(clean(text))
		if got.Suites[0].Out.Text != want {
			t.Errorf("%q became %q", want, got.Suites[0].Out.Text)
		}
	})
}
