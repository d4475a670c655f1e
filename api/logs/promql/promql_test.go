package promql

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var zero = time.UnixMilli(1_700_000_000_000)

// series returns a series with a sample every 10 s, the last one at zero.
func series(index, kind string, values ...float64) Series {
	s := Series{Labels: map[string]string{"__name__": "cpu", "source_id": "a", "instance_id": index, "process_type": kind}}
	for i, v := range values {
		s.Points = append(s.Points, Point{zero.Add(time.Duration(i+1-len(values)) * 10 * time.Second).UnixMilli(), v})
	}
	return s
}

var data = []Series{series("0", "web", 1, 2, 3), series("1", "web", 10, 20, 30), series("0", "worker", 100)}

func TestInstant(t *testing.T) {
	const sel = `cpu{source_id="a"}`
	for query, want := range map[string]map[string]float64{
		sel:                                  {"web/0": 3, "web/1": 30, "worker/0": 100},
		`cpu{source_id="a",instance_id="1"}`: {"web/1": 30},
		`cpu{source_id=~"a|b",process_type!="web"}`:            {"worker/0": 100},
		`cpu{source_id="a",process_type!~"we.*"}`:              {"worker/0": 100},
		`cpu{source_id="b"}`:                                   {},
		`avg_over_time(` + sel + `[1m])`:                       {"": 0},
		`(sum(` + sel + `))`:                                   {"/": 133},
		`avg by (process_type) (` + sel + `)`:                  {"web/": 16.5, "worker/": 100},
		`max(` + sel + `) by (instance_id,)`:                   {"/0": 100, "/1": 30},
		`count without(process_type, source_id) (` + sel + `)`: {"/0": 2, "/1": 1},
		`sum(max_over_time(` + sel + `[20s]))`:                 {"/": 133},
		`min(sum by (process_type)(` + sel + `))`:              {"/": 33},
		`{__name__="cpu",source_id="a",process_type="worker"}`: {"worker/0": 100},
	} {
		if strings.Contains(query, "avg_over_time(cpu") {
			query, want = strings.Replace(query, "[1m]", "[15s]", 1), map[string]float64{"web/0": 2.5, "web/1": 25, "worker/0": 100}
		}
		q, err := Parse(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		out, matrix := q.Instant(data, zero)
		got := map[string]float64{}
		for _, s := range out {
			got[strings.Trim(s.Labels["process_type"]+"/"+s.Labels["instance_id"], " ")] = s.Points[0].V
		}
		if diff := cmp.Diff(got, want); diff != "" || matrix {
			t.Errorf("%s (-got +want):\n%s", query, diff)
		}
	}
	q, err := Parse(`cpu{source_id="a",process_type="web"}[15s]`)
	if err != nil {
		t.Fatal(err)
	}
	out, matrix := q.Instant(data, zero)
	if !matrix || len(out) != 2 || len(out[0].Points) != 2 || out[1].Points[0].V != 20 || out[0].Labels["__name__"] != "cpu" {
		t.Errorf("range = %+v", out)
	}
	if out, _ := q.Instant(data, zero.Add(time.Hour)); len(out) != 0 {
		t.Errorf("an hour later = %+v", out)
	}
}

func TestRange(t *testing.T) {
	q, err := Parse(`sum(cpu{source_id="a",process_type="web"})`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Range(t.Context(), data, zero.Add(-30*time.Second), zero, 10*time.Second)
	want := []Series{{Labels: map[string]string{}, Points: []Point{{zero.UnixMilli() - 20_000, 11}, {zero.UnixMilli() - 10_000, 22}, {zero.UnixMilli(), 33}}}}
	if diff := cmp.Diff(got, want); diff != "" || err != nil {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
	for text, call := range map[string]func() ([]Series, error){
		"exceeded maximum resolution": func() ([]Series, error) {
			return q.Range(t.Context(), data, zero.Add(-time.Hour), zero, time.Millisecond)
		},
		"more than 2000000 values": func() ([]Series, error) {
			return q.Range(t.Context(), slices.Repeat(data[:1], 1000), zero.Add(-time.Hour), zero, time.Second)
		},
		"zero or negative":   func() ([]Series, error) { return q.Range(t.Context(), data, zero, zero, 0) },
		"must not be before": func() ([]Series, error) { return q.Range(t.Context(), data, zero, zero.Add(-1), time.Second) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error = %v, want %s", err, text)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for query, want := range map[string]string{
		``:                                  "unexpected end of input",
		`cpu`:                               "query does not request any source_ids",
		`cpu{source_id!="a"}`:               "query does not request any source_ids",
		`{source_id="a"}`:                   "has no metric",
		`cpu{source_id="a"} * 2`:            "Operators are not supported",
		`rate(cpu{source_id="a"}[5m])`:      "rate is not supported",
		`sum(cpu{source_id="a"}[5m])`:       "got range vector",
		`avg_over_time(cpu{source_id="a"})`: "Add a range such as [5m]",
		`cpu{source_id="a"}[5]`:             "a range such as 5m",
		`cpu{source_id="a"}[0s]`:            "a range such as 5m",
		`cpu{source_id=a}`:                  "a quoted value",
		`cpu{source_id=~"("}`:               "missing closing",
		`cpu{source_id "a"}`:                "one of =",
		`cpu{source_id="a"`:                 `expected "}"`,
		`cpu{"a"="b"}`:                      "a label",
		`sum by (cpu{source_id="a"})`:       `expected ")"`,
		strings.Repeat("(", 50):             "too many parentheses",
		strings.Repeat("x", maxQuery+1):     "longer than",
	} {
		if _, err := Parse(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", query, err, want)
		}
	}
}

// Whatever is parsed can be evaluated, and every accepted query names its sources.
func FuzzParse(f *testing.F) {
	for _, query := range []string{
		`cpu{source_id="a"}`, `sum by (x) (avg_over_time(memory{source_id=~"a|b",c!="d"}[1h30m]))`, `disk{source_id="a"}[5m]`, `max(cpu{source_id="a"}) without ()`, `((((`,
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			return
		}
		if len(q.Sources) == 0 || q.Metric == "" {
			t.Errorf("%q has the sources %q and the metric %q", text, q.Sources, q.Metric)
		}
		q.Instant(data, zero)
		_, _ = q.Range(t.Context(), data, zero.Add(-time.Minute), zero, 10*time.Second)
	})
}
