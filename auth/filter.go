package auth

import (
	"fmt"
	"slices"
	"strings"
)

const (
	maxFilter      = 4096 // in bytes
	maxFilterDepth = 16   // nested parentheses
)

// filter reports whether a resource matches. get returns the values of an attribute of
// the resource. It gets the attribute's name in lower case.
type filter func(get func(attr string) []string) bool

// parseFilter parses the filter language for lists:
//
//	or   = and { "or" and }
//	and  = term { "and" term }
//	term = "(" or ")" | attr "pr" | attr op value
//	op   = "eq" | "ne" | "co" | "sw" | "ew"
//
// A value is quoted, or a word like true. Words and values are compared without regard
// to case. attrs are the allowed attribute names, in lower case.
func parseFilter(text string, attrs []string) (filter, error) {
	if len(text) > maxFilter {
		return nil, fmt.Errorf("the filter has more than %d bytes", maxFilter)
	}
	p := &filterParser{rest: text, attrs: attrs}
	f, err := p.or()
	if err != nil {
		return nil, err
	}
	if t, err := p.next(); err != nil || t.kind != filterEnd {
		return nil, fmt.Errorf("unexpected text after %q", text[:len(text)-len(p.rest)])
	}
	return f, nil
}

type filterParser struct {
	rest  string
	depth int
	attrs []string
}

type filterKind int

const (
	filterEnd filterKind = iota
	filterWord
	filterText
	filterOpen
	filterClose
)

type filterToken struct {
	kind filterKind
	text string
}

// word reports whether the token is the word w.
func (t filterToken) word(w string) bool { return t.kind == filterWord && strings.EqualFold(t.text, w) }

func (p *filterParser) or() (filter, error) {
	return p.chain("or", p.and, func(a, b filter) filter {
		return func(get func(string) []string) bool { return a(get) || b(get) }
	})
}

func (p *filterParser) and() (filter, error) {
	return p.chain("and", p.term, func(a, b filter) filter {
		return func(get func(string) []string) bool { return a(get) && b(get) }
	})
}

func (p *filterParser) chain(word string, part func() (filter, error), join func(a, b filter) filter) (filter, error) {
	f, err := part()
	for err == nil && p.skip(word) {
		var g filter
		if g, err = part(); err == nil {
			f = join(f, g)
		}
	}
	return f, err
}

func (p *filterParser) term() (filter, error) {
	t, err := p.next()
	if err != nil {
		return nil, err
	}
	if t.kind == filterOpen {
		return p.group()
	}
	attr := strings.ToLower(t.text)
	if t.kind != filterWord || !slices.Contains(p.attrs, attr) {
		return nil, fmt.Errorf("%q is not a valid attribute in a filter; valid attributes: %s", printable(t.text), strings.Join(p.attrs, ", "))
	}
	if p.skip("pr") {
		return func(get func(string) []string) bool {
			return slices.ContainsFunc(get(attr), func(v string) bool { return v != "" })
		}, nil
	}
	return p.comparison(attr)
}

func (p *filterParser) group() (filter, error) {
	if p.depth++; p.depth > maxFilterDepth {
		return nil, fmt.Errorf("parentheses are nested more than %d levels deep", maxFilterDepth)
	}
	f, err := p.or()
	if err != nil {
		return nil, err
	}
	if t, err := p.next(); err != nil || t.kind != filterClose {
		return nil, fmt.Errorf("a parenthesis is not closed")
	}
	p.depth--
	return f, nil
}

func (p *filterParser) comparison(attr string) (filter, error) {
	op, err := p.next()
	if err != nil {
		return nil, err
	}
	compare := map[string]func(have, want string) bool{
		"eq": func(have, want string) bool { return have == want },
		"co": strings.Contains,
		"sw": strings.HasPrefix,
		"ew": strings.HasSuffix,
	}
	name := strings.ToLower(op.text)
	negate := name == "ne"
	if negate {
		name = "eq"
	}
	cmp, ok := compare[name]
	if op.kind != filterWord || !ok {
		return nil, fmt.Errorf("%q is not a valid operator; valid operators: eq, ne, co, sw, ew, pr", printable(op.text))
	}
	value, err := p.next()
	if err != nil {
		return nil, err
	}
	if value.kind != filterText && value.kind != filterWord {
		return nil, fmt.Errorf("a value is missing after %q", printable(op.text))
	}
	want := fold(value.text)
	return func(get func(string) []string) bool {
		return slices.ContainsFunc(get(attr), func(have string) bool { return cmp(fold(have), want) }) != negate
	}, nil
}

// skip consumes the next token if it is the word.
func (p *filterParser) skip(word string) bool {
	before := p.rest
	t, err := p.next()
	if err == nil && t.word(word) {
		return true
	}
	p.rest = before
	return false
}

func (p *filterParser) next() (filterToken, error) {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	if p.rest == "" {
		return filterToken{}, nil
	}
	switch c := p.rest[0]; c {
	case '(':
		p.rest = p.rest[1:]
		return filterToken{filterOpen, "("}, nil
	case ')':
		p.rest = p.rest[1:]
		return filterToken{filterClose, ")"}, nil
	case '"', '\'':
		return p.quoted(c)
	}
	n := strings.IndexAny(p.rest, " \t\r\n()\"'")
	if n < 0 {
		n = len(p.rest)
	}
	word := p.rest[:n]
	p.rest = p.rest[n:]
	return filterToken{filterWord, word}, nil
}

// quoted reads a quoted value. A backslash makes the next byte part of it.
func (p *filterParser) quoted(quote byte) (filterToken, error) {
	var out strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == quote:
			p.rest = p.rest[i+1:]
			return filterToken{filterText, out.String()}, nil
		case c == '\\' && i+1 < len(p.rest):
			i++
			out.WriteByte(p.rest[i])
		default:
			out.WriteByte(c)
		}
	}
	return filterToken{}, fmt.Errorf("a quote is not closed")
}
