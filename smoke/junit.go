package smoke

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The elements of a JUnit report, in the order that its readers expect.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		ID         int             `xml:"id,attr"`
		Package    string          `xml:"package,attr"`
		Hostname   string          `xml:"hostname,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
		Out        junitText       `xml:"system-out"`
		Err        junitText       `xml:"system-err"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Skipped *junitSkipped `xml:"skipped"`
		Failure *junitFailure `xml:"failure"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",cdata"` // with lines, so that people can read it
	}
	junitText struct {
		Text string `xml:",cdata"`
	}
)

// JUnit returns the report as JUnit XML: a suite for each folder, a case for each step.
// It replaces control characters and bytes that are not UTF-8, which XML does not
// allow. It hides secrets, because CI servers show the report to all their users.
func (r Report) JUnit() []byte {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	all := junitSuites{Name: "dew smoke", Time: r.Took.String()}
	for i, f := range r.Folders {
		s := f.suite()
		s.ID, s.Hostname = i, host
		all.Suites = append(all.Suites, s)
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Skipped += s.Skipped
	}
	var b bytes.Buffer
	b.WriteString(xml.Header)
	enc := xml.NewEncoder(&b)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		panic(fmt.Sprintf("cannot write the report: %v", err)) // a write to a buffer never fails
	}
	return append(b.Bytes(), '\n')
}

func (f Result) suite() junitSuite {
	s := junitSuite{
		Name: f.Folder, Package: className(f.Folder), Timestamp: f.Began.UTC().Format("2006-01-02T15:04:05"), Time: f.Took.String(), Tests: len(f.Steps),
		Properties: []junitProperty{{"status", fmt.Sprint(f.Status)}, {"org", f.TestSpace.Org}, {"space", f.TestSpace.Space}},
		Out:        junitText{clean(f.mask.text(f.Log))},
	}
	for _, step := range f.Steps {
		c := junitCase{Name: f.mask.text(step.Name), Class: s.Package, Time: step.Took.String()}
		switch step.State {
		case StateSkipped:
			s.Skipped++
			c.Skipped = &junitSkipped{Message: cmp.Or(step.Detail, "an earlier step failed")}
		case StateFailed:
			s.Failures++
			c.Failure = &junitFailure{Message: f.mask.text(step.Detail), Type: statusName(step.Status), Text: clean(f.mask.text(step.text()))}
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}

// text returns all details of a failure.
func (s Step) text() string {
	parts := []string{s.Detail}
	for _, more := range []string{s.Todo, s.Output} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	return strings.Join(parts, "\n")
}

// clean replaces characters that XML does not allow.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000 && r <= 0x10ffff {
			return r
		}
		return '\ufffd'
	}, s)
}

// className returns a folder in the form by which readers group cases: separated by
// dots.
func className(folder string) string {
	name := strings.Trim(strings.ReplaceAll(filepath.ToSlash(filepath.Clean(folder)), "/", "."), ".")
	if name == "" {
		return "smoke"
	}
	return "smoke." + name
}

// statusName returns an exit status as one word.
func statusName(status int) string {
	names := map[int]string{
		StatusFailed: "failed", StatusUsage: "usage", StatusStaging: "staging", StatusCrashed: "crashed", StatusTimeout: "timeout",
		StatusUnreachable: "unreachable", StatusMemory: "out-of-memory", StatusAssertion: "assertion", StatusInfrastructure: "infrastructure",
	}
	if name := names[status]; name != "" {
		return name
	}
	return fmt.Sprint("status-", status)
}
