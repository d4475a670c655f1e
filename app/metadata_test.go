package app

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetadataMerge(t *testing.T) {
	b, empty := "b", ""
	old := Metadata{Labels: map[string]string{"a": "1", "c": "2"}}
	got := old.Merge(MetadataChange{
		Labels:      map[string]*string{"a": &b, "c": nil, "gone": nil},
		Annotations: map[string]*string{"note": &empty},
	})
	want := Metadata{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"note": ""}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("merged (-got +want):\n%s", diff)
	}
	if !maps.Equal(old.Labels, map[string]string{"a": "1", "c": "2"}) {
		t.Errorf("the old labels became %v", old.Labels)
	}
	if last := got.Merge(MetadataChange{Labels: map[string]*string{"a": nil}, Annotations: map[string]*string{"note": nil}}); !last.IsZero() {
		t.Errorf("after taking all away = %+v, want nothing", last)
	}
}

func TestMetadataValidate(t *testing.T) {
	long := strings.Repeat("x", maxLabel+1)
	for _, m := range []Metadata{
		{},
		{Labels: map[string]string{"a": "", "b.c_d-e": "F.g_h-1", "example.com/key": "v"}},
		{Annotations: map[string]string{"example.com/key": "any text, ünïcode\ntoo", "b": strings.Repeat("é", maxAnnotation)}},
	} {
		if err := m.Validate(); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, m := range []Metadata{
		{Labels: map[string]string{"": "a"}},
		{Labels: map[string]string{"-a": "a"}},
		{Labels: map[string]string{"a b": "a"}},
		{Labels: map[string]string{long: "a"}},
		{Labels: map[string]string{"a": long}},
		{Labels: map[string]string{"a": "no spaces"}},
		{Labels: map[string]string{"a": "end-"}},
		{Labels: map[string]string{"/a": "a"}},
		{Labels: map[string]string{"a/b/c": "a"}},
		{Labels: map[string]string{"under_score/a": "a"}},
		{Labels: map[string]string{"cloudfoundry.org/a": "a"}},
		{Annotations: map[string]string{"cloudfoundry.org/a": "a"}},
		{Annotations: map[string]string{"a": strings.Repeat("x", maxAnnotation+1)}},
		{Annotations: map[string]string{"a": "\xff"}},
	} {
		if err := m.Validate(); len(Problems(err)) != 1 {
			t.Errorf("%+v: %v, want one problem", m, err)
		}
	}
}

func TestSelector(t *testing.T) {
	labels := map[string]string{"env": "prod", "tier": "back", "empty": ""}
	for text, want := range map[string]bool{
		"env":                               true,
		"!env":                              false,
		"other":                             false,
		"!other":                            true,
		"env=prod":                          true,
		"env==prod":                         true,
		"env = prod":                        true,
		"env=dev":                           false,
		"env!=dev":                          true,
		"env!=prod":                         false,
		"other!=prod":                       true,
		"other=prod":                        false,
		"empty=":                            true,
		"env=":                              false,
		"env in (dev, prod)":                true,
		"env in (dev)":                      false,
		"env notin (dev,test)":              true,
		"env notin (prod)":                  false,
		"other notin (prod)":                true,
		"env in (dev,prod),tier=back,!gone": true,
		"env in (dev,prod),tier=front":      false,
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := s.Matches(labels); got != want {
			t.Errorf("%q chooses = %t, want %t", text, got, want)
		}
	}
	if !Selector(nil).Matches(nil) {
		t.Error("no selector chooses nothing")
	}
	for _, text := range []string{"", ",", "a,", "a in", "a in (", "a in b", "a=b c", "=a", "!", "a in (b,(c))", "a b"} {
		if s, err := ParseSelector(text); err == nil {
			t.Errorf("%q is %+v, want an error", text, s)
		}
	}
}

func FuzzParseSelector(f *testing.F) {
	for _, text := range []string{"a=b", "a in (b,c),!d", "a notin (", "x.y/z!=1", ")("} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSelector(text)
		if err == nil && len(s) == 0 {
			t.Errorf("%q is an empty selector", text)
		}
		s.Matches(map[string]string{"a": "b"})
	})
}
