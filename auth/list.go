package auth

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultCount = 100
	maxCount     = 500
)

// listing defines how resources of one kind are filtered, sorted and shown.
type listing[T any] struct {
	schema string
	// attrs are the attributes to filter and sort by, in lower case.
	attrs []string
	get   func(v T, attr string) []string
	show  func(v T) any
}

// scimList is a page of a list.
type scimList struct {
	Resources    []any    `json:"resources"`
	StartIndex   int      `json:"startIndex"`
	ItemsPerPage int      `json:"itemsPerPage"`
	TotalResults int      `json:"totalResults"`
	Schemas      []string `json:"schemas"`
}

// page returns the part of all that a request selects.
func (l listing[T]) page(r *http.Request, all []T) (reply, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return reply{}, badRequest("The query string of the URL is not valid")
	}
	start, err := number(query, "startIndex", 1)
	if err != nil {
		return reply{}, err
	}
	count, err := number(query, "count", defaultCount)
	if err != nil {
		return reply{}, err
	}
	start, count = max(start, 1), min(count, maxCount)
	if all, err = l.filtered(all, query.Get("filter")); err != nil {
		return reply{}, err
	}
	if err := l.sort(all, query.Get("sortBy"), query.Get("sortOrder")); err != nil {
		return reply{}, err
	}
	var attributes []string
	if a := query.Get("attributes"); a != "" {
		attributes = strings.Split(a, ",")
	}
	out := scimList{Resources: []any{}, StartIndex: start, ItemsPerPage: count, TotalResults: len(all), Schemas: []string{l.schema}}
	from := min(start-1, len(all))
	for _, v := range all[from:min(from+count, len(all))] {
		shown, err := selectAttributes(l.show(v), attributes)
		if err != nil {
			return reply{}, fmt.Errorf("cannot encode a resource: %w", err)
		}
		out.Resources = append(out.Resources, shown)
	}
	return reply{body: out}, nil
}

func (l listing[T]) filtered(all []T, text string) ([]T, error) {
	if text == "" {
		return all, nil
	}
	f, err := parseFilter(text, l.attrs)
	if err != nil {
		return nil, &problem{status: http.StatusBadRequest, code: "scim", description: fmt.Sprintf("Invalid filter expression: [%s]: %v", printable(text), err)}
	}
	return slices.DeleteFunc(all, func(v T) bool {
		return !f(func(attr string) []string { return l.get(v, attr) })
	}), nil
}

func (l listing[T]) sort(all []T, by, order string) error {
	if by == "" && order == "" {
		return nil
	}
	attr := strings.ToLower(by)
	if attr == "" {
		attr = l.attrs[0]
	}
	if !slices.Contains(l.attrs, attr) {
		return &problem{status: http.StatusBadRequest, code: "scim", description: "Invalid sortBy: " + printable(by)}
	}
	sign := 1
	switch strings.ToLower(order) {
	case "", "asc", "ascending":
	case "desc", "descending":
		sign = -1
	default:
		return &problem{status: http.StatusBadRequest, code: "scim", description: "Invalid sortOrder: " + printable(order)}
	}
	key := func(v T) string { return fold(strings.Join(l.get(v, attr), "\x00")) }
	slices.SortStableFunc(all, func(a, b T) int { return sign * strings.Compare(key(a), key(b)) })
	return nil
}

// number reads a whole number that is not negative.
func number(query url.Values, name string, otherwise int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, &problem{status: http.StatusBadRequest, code: "scim", description: fmt.Sprintf("Invalid %s: %s", name, printable(text))}
	}
	return n, nil
}
