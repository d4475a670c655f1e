//go:build integration

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/dewrun/dew/api/rest"
	"github.com/dewrun/dew/app"
)

// Every documented parameter of a list, alone and in pairs, returns the same items as a
// simple filter over the whole list.
func TestEveryListFilters(t *testing.T) {
	t.Parallel()
	h := newOrgServer(t)
	h.fill(t)
	h.mix(t)
	lists := h.lists(t)
	h.label(t, lists)
	h.spread(t)
	ref := h.resourceIndex(t)
	for turn, pattern := range sortedKeys(lists) {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			l := listCase{
				orgServer: h.in(t), ref: ref, pattern: pattern, path: lists[pattern], o: operations()[pattern], turn: turn, known: map[param][]bool{},
			}
			l.kind = l.o.Responses[200][0].Of.Field(resourcesField).Type.Elem().Name()
			l.all = l.get(t, nil)
			l.alone(t)
			l.inPairs(t)
			l.ordered(t)
			l.checkIncludes(t)
		})
	}
}

// in returns the same org server for a subtest.
func (h *orgServer) in(t *testing.T) *orgServer {
	w, part := *h.testServer, *h
	w.t, part.testServer = t, &w
	return &part
}

// spread gives all stored values different times, as if they had been created over
// several days, and restarts the server.
func (h *orgServer) spread(t *testing.T) {
	t.Helper()
	for _, stop := range h.stops {
		stop()
	}
	if err := h.c.DB.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(h.c.UploadDir)
	db := must(bbolt.Open(filepath.Join(dir, "dew.db"), 0o600, nil))(t)
	n := 0
	err := db.Update(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			if b = b.Bucket([]byte("values")); b == nil {
				return nil
			}
			kept := map[string][]byte{}
			if err := b.ForEach(func(k, v []byte) error { kept[string(k)] = bytes.Clone(v); return nil }); err != nil {
				return err
			}
			for _, k := range sortedKeys(kept) {
				n++
				if err := b.Put([]byte(k), withTime(t, kept[k], n)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	h.testServer = newTestServerIn(t, dir)
	h.testServer.space = h.space
	h.local = h.s.Local() // other tests compare responses with the description
}

// withTime returns a stored value with the n-th time.
func withTime(t *testing.T, raw []byte, n int) []byte {
	t.Helper()
	var v map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return raw // the value has no times
	}
	at := time.Now().UTC().Truncate(time.Hour).Add(-240 * time.Hour).Add(time.Duration(n%7) * time.Hour)
	for _, key := range []string{"created_at", "CreatedAt", "updated_at", "UpdatedAt"} {
		if _, ok := v[key]; !ok {
			continue
		}
		v[key] = at
		if strings.HasPrefix(key, "u") || strings.HasPrefix(key, "U") {
			v[key] = at.Add(time.Duration(n%3) * time.Hour)
		}
	}
	return must(json.Marshal(v))(t)
}

// resourcesField is the index of the items in a page.
var resourcesField = func() int {
	f, _ := reflect.TypeFor[anyList]().FieldByName("Resources")
	return f.Index[0]
}()

// mix creates differences that fill does not create.
func (h *orgServer) mix(t *testing.T) {
	t.Helper()
	elsewhere := must(h.c.Registry.Spaces())(t)[0]
	q := must(h.c.Registry.PutQuota(app.Quota{Name: "large"}))(t)
	must(h.c.Registry.UpdateOrg(h.org.GUID, func(o *app.Org) error { o.Quota = q.GUID; return nil }))(t)
	must(h.c.Registry.UpdateSpace(h.space.GUID, func(sp *app.Space) error { sp.Quota = h.guids["Space quota"]; return nil }))(t)
	must(h.c.Registry.PutSecurityGroup(app.SecurityGroup{Name: "one-side", Running: true, Runs: []string{h.space.GUID}, Stages: []string{elsewhere.GUID}}))(t)
	must(h.c.Registry.PutSegment(app.Segment{Name: "lonely"}))(t)
	must(h.c.Registry.UpdateTask(h.guids["Task"], func(v *app.Task) error { v.State = app.TaskRunning; return nil }))(t)
	plan := h.plan("small").GUID
	h.want(200, "PATCH", "/v3/service_plans/"+plan+"/visibility", `{"type":"organization","organizations":[{"guid":"`+h.org.GUID+`"}]}`, nil)
	h.complete(h.want(202, "POST", "/v3/service_credential_bindings", boundTo(h.guids["Service instance"], "", `,"name":"key"`), nil))
}

// label gives labels to some of the resources that can have labels.
func (h *orgServer) label(t *testing.T, lists map[string]string) {
	t.Helper()
	labels := []string{`{"tier":"front","zone":"a"}`, `{"tier":"back"}`, `{"zone":"b"}`, `{}`}
	seen := map[string]bool{}
	for pattern, path := range lists {
		if !operations()[pattern].HasParam(rest.ParamSelector) {
			continue
		}
		for i, r := range h.page(t, path+"?per_page=5000").Resources {
			var one record
			mustRead(t, r, &one)
			self := strings.TrimPrefix(textAt(one, "links.self.href"), publicURL)
			if self == "" || seen[self] {
				continue
			}
			seen[self] = true
			got := h.request("PATCH", self, `{"metadata":{"labels":`+labels[i%len(labels)]+`}}`)
			if got.Code != 200 && !strings.Contains(got.Body.String(), "is built in") {
				t.Errorf("%s takes no labels: %d %s", self, got.Code, got.Body)
			}
		}
	}
}

// listCase is a list that is tested with all its parameters.
type listCase struct {
	*orgServer
	ref           resourceIndex
	pattern, path string
	kind          string // kind of its items
	o             rest.Shape
	all           []item
	turn          int              // number of the list among all
	known         map[param][]bool // earlier results of lets
}

// item is an item of a list, as text and decoded.
type item struct {
	raw string
	record
}

// get requests the list with a query.
func (l listCase) get(t *testing.T, q url.Values) []item {
	t.Helper()
	return l.items(t, l.page(t, l.address(q)).Resources)
}

func (l listCase) address(q url.Values) string {
	if q == nil {
		q = url.Values{}
	}
	q.Set("per_page", "5000")
	return l.path + "?" + q.Encode()
}

func (l listCase) items(t *testing.T, raws []json.RawMessage) (out []item) {
	t.Helper()
	for _, raw := range raws {
		i := item{raw: string(raw)}
		mustRead(t, raw, &i.record)
		out = append(out, i)
	}
	return out
}

// param is a parameter with a value.
type param struct{ name, value string }

// wants requests the list with some parameters and compares the result.
func (l listCase) wants(t *testing.T, params ...param) {
	t.Helper()
	q := url.Values{}
	for _, a := range params {
		q.Set(a.name, a.value)
	}
	got := texts(l.page(t, l.address(q)).Resources)
	var want []string
	for i, in := range l.chosen(t, params...) {
		if in {
			want = append(want, l.all[i].raw)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s with %v has %d of %d, want %d (-got +want):\n%.1500s", l.pattern, params, len(got), len(l.all), len(want), cmp.Diff(got, want))
	}
}

// chosen reports for each item whether it passes the simple filters.
func (l listCase) chosen(t *testing.T, params ...param) []bool {
	t.Helper()
	out := make([]bool, len(l.all))
	for i := range out {
		out[i] = true
	}
	for _, a := range params {
		one, known := l.known[a]
		if !known {
			for _, i := range l.all {
				one = append(one, l.matches(t, a, i.record))
			}
			l.known[a] = one
		}
		for i := range out {
			out[i] = out[i] && one[i]
		}
	}
	return out
}

// matches is the simple filter.
func (l listCase) matches(t *testing.T, a param, r record) bool {
	t.Helper()
	bare, operator, _ := strings.Cut(strings.TrimSuffix(a.name, "]"), "[")
	switch {
	case a.name == rest.ParamSelector:
		return selects(a.value, r)
	case bare == rest.ParamCreated || bare == rest.ParamUpdated:
		return compareTimes(operator, a.value, textAt(r, strings.TrimSuffix(bare, "s")))
	case a.name == "target_guids[not]":
		return !slices.Contains(rest.SplitList(a.value), textAt(r, "target.guid"))
	}
	values := l.ref.values(t, l.kind, a.name, r)
	return slices.ContainsFunc(rest.SplitList(a.value), func(want string) bool {
		return slices.ContainsFunc(values, func(v string) bool {
			if a.name == "partial_usernames" {
				return strings.Contains(strings.ToLower(v), strings.ToLower(want))
			}
			return v == want || v == anywhere
		})
	})
}

// compareTimes compares times as text: all have the same time zone.
func compareTimes(operator, want, have string) bool {
	switch operator {
	case "gt":
		return have > want
	case "gte":
		return have >= want
	case "lt":
		return have < want
	case "lte":
		return have <= want
	}
	return slices.Contains(strings.Split(want, ","), have)
}

// selectors holds label selectors and the function that each stands for.
var selectors = map[string]func(labels map[string]string) bool{
	"tier=back":                   func(m map[string]string) bool { return m["tier"] == "back" },
	"tier==front":                 func(m map[string]string) bool { return m["tier"] == "front" },
	"tier!=front":                 func(m map[string]string) bool { return m["tier"] != "front" },
	"tier in (back,front)":        func(m map[string]string) bool { return m["tier"] != "" },
	"tier notin (back,side)":      func(m map[string]string) bool { return m["tier"] != "back" },
	"zone":                        func(m map[string]string) bool { return m["zone"] != "" },
	"!zone":                       func(m map[string]string) bool { return m["zone"] == "" },
	"tier in (back, front),!zone": func(m map[string]string) bool { return m["tier"] != "" && m["zone"] == "" },
	"tier!=back,zone":             func(m map[string]string) bool { return m["tier"] != "back" && m["zone"] != "" },
	"nobody=has,tier":             func(map[string]string) bool { return false },
}

func selects(selector string, r record) bool {
	labels := map[string]string{}
	if m, ok := r["metadata"].(map[string]any)["labels"].(map[string]any); ok {
		for k, v := range m {
			labels[k] = fmt.Sprint(v)
		}
	}
	return selectors[selector](labels)
}

// queries returns values for a parameter that match one item, none and several.
func (l listCase) queries(t *testing.T, name string) []string {
	t.Helper()
	bare, operator, _ := strings.Cut(name, "[")
	values := map[string]bool{}
	for _, i := range l.all {
		switch {
		case bare == rest.ParamCreated || bare == rest.ParamUpdated:
			values[textAt(i.record, strings.TrimSuffix(bare, "s"))] = true
		case name == "target_guids[not]":
			values[textAt(i.record, "target.guid")] = true
		case name != rest.ParamSelector:
			for _, v := range l.ref.values(t, l.kind, name, i.record) {
				values[v] = true
			}
		}
	}
	if name == rest.ParamSelector {
		return sortedKeys(selectors)
	}
	delete(values, "") // the item does not have a value
	delete(values, anywhere)
	some := sortedKeys(values)
	switch {
	case len(some) > 2 && operator != "":
		some = some[len(some)/2 : len(some)/2+1]
	case len(some) > 3:
		some = []string{some[0], some[len(some)/2], some[len(some)-1]}
	}
	if _, one := rest.Single[name]; !one && operator == "" && !slices.Contains(oneOf, name) {
		some = append(some, "nonsense")
		if bare == rest.ParamCreated || bare == rest.ParamUpdated {
			some[len(some)-1] = "1999-01-02T03:04:05Z"
		}
		if len(some) > 2 {
			some = append(some, strings.Join(some[:2], ","))
		}
	}
	return some
}

// oneOf lists the parameters that accept only their own values.
var oneOf = []string{"globally_enabled_running", "globally_enabled_staging"}

// filters returns the parameters of this list that filter items.
func (l listCase) filters() []string {
	all := slices.DeleteFunc(slices.Clone(l.o.Params), func(name string) bool {
		return name == "include" || name == "embed" || name == "after_guid" || strings.HasPrefix(name, "fields[")
	})
	for _, name := range []string{rest.ParamCreated, rest.ParamUpdated} {
		all = append(all, name)
		for _, op := range rest.Operators {
			all = append(all, name+"["+op+"]")
		}
	}
	return all
}

// with adds the parameters that another parameter requires.
func (l listCase) with(a param) []param {
	if a.name == "origins" {
		return []param{a, {"partial_usernames", "u"}}
	}
	return []param{a}
}

// alone tests every parameter with several values.
func (l listCase) alone(t *testing.T) {
	t.Helper()
	for n, name := range l.filters() {
		for i, value := range l.queries(t, name) {
			first := i == 0 && !strings.Contains(name, "[")
			if longTests() || !isCommonParam(name) || first || (i+n+l.turn)%3 == 0 {
				l.wants(t, l.with(param{name, value})...)
			}
		}
	}
}

// isCommonParam reports whether a parameter is handled by the same code for all lists. Such a
// parameter is tested with some values for each list, and with all values over all
// lists.
func isCommonParam(name string) bool {
	bare, _, _ := strings.Cut(name, "[")
	return bare == rest.ParamCreated || bare == rest.ParamUpdated || name == rest.ParamSelector
}

// exclusive lists parameters that exclude each other.
var exclusive = []string{"usernames", "partial_usernames"}

// inPairs tests every pair of parameters, with values where each excludes items that
// the other does not. If there are no such values, or in proof mode, it uses values of
// the same item and of different items.
func (l listCase) inPairs(t *testing.T) {
	t.Helper()
	names := slices.DeleteFunc(l.filters(), func(name string) bool {
		bare, operator, _ := strings.Cut(name, "[")
		return bare == rest.ParamCreated && operator != "gte]" || bare == rest.ParamUpdated && operator != "lt]"
	})
	values := map[string][]string{}
	for _, name := range names {
		values[name] = l.queries(t, name)
	}
	for i, first := range names {
		for _, second := range names[:i] {
			a, b := values[first], values[second]
			if len(a) == 0 || len(b) == 0 || first == "origins" || second == "origins" ||
				slices.Contains(exclusive, first) && slices.Contains(exclusive, second) {
				continue
			}
			telling := l.telling(t, l.askings(first, a), l.askings(second, b))
			if telling != nil {
				l.wants(t, telling...)
			}
			if telling == nil || longTests() {
				l.wants(t, param{first, a[0]}, param{second, b[0]})
				l.wants(t, param{first, a[len(a)/2]}, param{second, b[min(1, len(b)-1)]})
			}
		}
	}
}

func (l listCase) askings(name string, values []string) (out []param) {
	for _, v := range values {
		out = append(out, param{name, v})
	}
	return out
}

// telling returns two values of which neither can be ignored without a different
// result. It prefers values that match an item. It returns nil if there are none.
func (l listCase) telling(t *testing.T, as, bs []param) (found []param) {
	t.Helper()
	for _, a := range as {
		for _, b := range bs {
			both := l.chosen(t, a, b)
			if slices.Equal(both, l.chosen(t, a)) || slices.Equal(both, l.chosen(t, b)) {
				continue
			}
			found = []param{a, b}
			if slices.Contains(both, true) {
				return found
			}
		}
	}
	return found
}

// ordered requests every order, ascending and descending, and compares the results.
func (l listCase) ordered(t *testing.T) {
	t.Helper()
	for n, by := range l.o.Orders {
		page := l.page(t, l.address(url.Values{"order_by": {by}})).Resources
		up, down := texts(page), texts(l.page(t, l.address(url.Values{"order_by": {"-" + by}})).Resources)
		slices.Reverse(down)
		plus := up
		if n == 0 || longTests() { // the same code handles it for all orders
			plus = texts(l.page(t, l.address(url.Values{"order_by": {"+" + by}})).Resources)
		}
		if len(up) != len(l.all) || !slices.Equal(up, down) || !slices.Equal(up, plus) {
			t.Errorf("%s by %s is not the reverse of itself", l.pattern, by)
		}
		if !slices.IsSortedFunc(l.items(t, page), func(a, b item) int { return strings.Compare(sortable(a, by), sortable(b, by)) }) {
			t.Errorf("%s by %s is not sorted", l.pattern, by)
		}
	}
}

func sortable(i item, by string) string {
	if n, ok := i.record[by].(float64); ok {
		return fmt.Sprintf("%012.0f", n)
	}
	return textAt(i.record, by)
}
