package app

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dewrun/dew/yamlfile"
)

// Limits of labels and annotations.
const (
	maxLabel      = 63
	maxLabelSpace = 253 // length of the part before the slash
	maxAnnotation = 5000
)

// reservedLabels is the prefix of labels that is reserved for Cloud Foundry.
const reservedLabels = "cloudfoundry.org"

var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)
	labelSpace = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
)

// Metadata is the metadata of a resource: labels to select it by, and annotations with
// further information.
type Metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MetadataChange changes metadata; a nil value removes a key.
type MetadataChange struct {
	Labels, Annotations map[string]*string
}

// IsZero reports whether there is neither a label nor an annotation.
func (m Metadata) IsZero() bool { return len(m.Labels) == 0 && len(m.Annotations) == 0 }

// Merge returns m with the change. It does not modify m.
func (m Metadata) Merge(c MetadataChange) Metadata {
	return Metadata{Labels: MergeTexts(m.Labels, c.Labels), Annotations: MergeTexts(m.Annotations, c.Annotations)}
}

// Validate checks labels and annotations. The errors are Invalids.
func (m Metadata) Validate() error {
	var ps Violations
	for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
		checkLabelKey(&ps, "metadata.labels["+k+"]", k)
		if v := m.Labels[k]; v != "" && (len(v) > maxLabel || !labelName.MatchString(v)) {
			ps.Add("metadata.labels["+k+"]", "must have at most %d letters, digits, -, _ and ., with a letter or digit at both ends, not %q", maxLabel, yamlfile.Shorten(v))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m.Annotations)) {
		checkLabelKey(&ps, "metadata.annotations["+k+"]", k)
		if v := m.Annotations[k]; utf8.RuneCountInString(v) > maxAnnotation || !utf8.ValidString(v) {
			ps.Add("metadata.annotations["+k+"]", "must be valid UTF-8 of at most %d characters", maxAnnotation)
		}
	}
	return ps.Err()
}

func checkLabelKey(ps *Violations, key, k string) {
	space, name, slashed := strings.Cut(k, "/")
	if !slashed {
		space, name = "", k
	}
	switch {
	case slashed && (len(space) > maxLabelSpace || !labelSpace.MatchString(space)):
		ps.Add(key, "the part before the slash must be a DNS name of at most %d characters", maxLabelSpace)
	case strings.EqualFold(space, reservedLabels):
		ps.Add(key, "keys that start with %s/ are reserved for the platform", reservedLabels)
	case len(name) > maxLabel || !labelName.MatchString(name):
		ps.Add(key, "a key must have at most %d letters, digits, -, _ and ., with a letter or digit at both ends", maxLabel)
	}
}

// Clone returns a copy that shares nothing with m.
func (m Metadata) Clone() Metadata {
	return Metadata{Labels: maps.Clone(m.Labels), Annotations: maps.Clone(m.Annotations)}
}

// Equal reports whether labels and annotations are the same.
func (m Metadata) Equal(o Metadata) bool {
	return maps.Equal(m.Labels, o.Labels) && maps.Equal(m.Annotations, o.Annotations)
}

// MergeTexts returns old with the change. A nil value removes a key.
func MergeTexts(old map[string]string, change map[string]*string) map[string]string {
	out := maps.Clone(old)
	for k, v := range change {
		if v == nil {
			delete(out, k)
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = *v
	}
	if len(out) == 0 {
		return nil // as the store returns it
	}
	return out
}

// Selector selects resources by their labels. The empty selector selects all.
type Selector []requirement

// requirement is one part of a selector.
type requirement struct {
	key    string
	not    bool
	values []string // nil: it checks only the key
}

// ParseSelector parses a selector: parts such as a=b, a!=b, a in (b,c), a notin (b,c),
// a and !a, with commas between them.
func ParseSelector(s string) (Selector, error) {
	var out Selector
	for _, part := range splitSelector(s) {
		r, err := parseRequirement(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// splitSelector cuts at the commas that are not in parentheses.
func splitSelector(s string) (parts []string) {
	depth, start := 0, 0
	for i, c := range s {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, s[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, s[start:])
}

var setRequirement = regexp.MustCompile(`^(\S+)\s+(in|notin)\s*\(([^()]*)\)$`)

func parseRequirement(s string) (r requirement, err error) {
	if m := setRequirement.FindStringSubmatch(s); m != nil {
		r = requirement{key: m[1], not: m[2] == "notin"}
		for v := range strings.SplitSeq(m[3], ",") {
			r.values = append(r.values, strings.TrimSpace(v))
		}
		return r, r.check(s)
	}
	for _, op := range []struct {
		text string
		not  bool
	}{{"!=", true}, {"==", false}, {"=", false}} {
		if k, v, ok := strings.Cut(s, op.text); ok {
			r = requirement{key: strings.TrimSpace(k), not: op.not, values: []string{strings.TrimSpace(v)}}
			return r, r.check(s)
		}
	}
	r.key, r.not = strings.CutPrefix(s, "!")
	return r, r.check(s)
}

func (r requirement) check(s string) error {
	var ps Violations
	checkLabelKey(&ps, "key", r.key)
	for _, v := range r.values {
		if v != "" && (len(v) > maxLabel || !labelName.MatchString(v)) {
			ps.Add("value", "must be a label's value")
		}
	}
	if len(ps) > 0 {
		return fmt.Errorf("%q is not a valid part of a selector: write a=b, a!=b, a in (b,c), a notin (b,c), a or !a", yamlfile.Shorten(s))
	}
	return nil
}

// Matches reports whether the selector selects a resource with the labels.
func (s Selector) Matches(labels map[string]string) bool {
	return !slices.ContainsFunc(s, func(r requirement) bool { return !r.matches(labels) })
}

func (r requirement) matches(labels map[string]string) bool {
	v, has := labels[r.key]
	if r.values == nil {
		return has != r.not
	}
	if r.not {
		return !has || !slices.Contains(r.values, v)
	}
	return has && slices.Contains(r.values, v)
}
