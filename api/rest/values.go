package rest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/platform"
)

// GUIDs returns the guids of a relationship.
func GUIDs(m *v3.ToMany) []string {
	var out []string
	if m != nil {
		for _, d := range m.Data {
			out = append(out, d.GUID)
		}
	}
	return out
}

// ToMany returns the relationship to the guids.
func ToMany(guids []string) v3.ToMany {
	out := v3.ToMany{Data: []v3.GUID{}}
	for _, guid := range guids {
		out.Data = append(out.Data, v3.GUID{GUID: guid})
	}
	return out
}

// OptionalToOne returns a relationship, or nil if there is none.
func OptionalToOne(guid string) *v3.ToOne {
	if guid == "" {
		return nil
	}
	one := v3.To(guid)
	return &one
}

// OrEmpty returns a list that is not null.
func OrEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// Include has the guids of the related resources that a request wants to include.
type Include struct{ Orgs, Spaces, Users []string }

// PresentEach reads and presents each of the guids once.
func PresentEach[T, V any](guids []string, get func(guid string) (T, error), present func(T) V) ([]V, error) {
	out := []V{}
	for i, guid := range guids {
		if guid == "" || slices.Contains(guids[:i], guid) {
			continue
		}
		v, err := get(guid)
		if platform.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, present(v))
	}
	return out, nil
}

// Values returns one value of every item.
func Values[T any](all []T, value func(T) string) []string {
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = value(v)
	}
	return out
}

// MatchesPart reports whether the value contains one of the filter's texts.
func (q Query) MatchesPart(filter, value string) bool {
	parts, given := q.Filters[filter]
	for _, part := range parts {
		if strings.Contains(strings.ToLower(value), strings.ToLower(part)) {
			return true
		}
	}
	return !given
}

// BoolFilter reads a filter that is true or false. It returns nil if the filter is not
// given.
func (q Query) BoolFilter(name string) (*bool, error) {
	given := q.Filters[name]
	if given == nil {
		return nil, nil
	}
	b, err := strconv.ParseBool(given[0])
	if err != nil || len(given) > 1 {
		return nil, BadQuery("%s must be true or false", name)
	}
	return &b, nil
}

// OrObject returns JSON that is not null.
func OrObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// After returns the events after the one that a client has read last.
func (q Query) After(all []app.Usage) ([]app.Usage, error) {
	last, given := q.Filters["after_guid"]
	if !given {
		return all, nil
	}
	i := slices.IndexFunc(all, func(u app.Usage) bool { return len(last) == 1 && u.GUID == last[0] })
	if i < 0 {
		return nil, BadQuery("After guid filter must be a valid event guid.")
	}
	return all[i+1:], nil
}

// APIVersion is the Cloud Foundry API version that clients can expect. Versions after
// 3.211.0 promise features that dew does not have.
const APIVersion = "3.211.0"
