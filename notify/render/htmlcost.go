package render

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// The HTML parser copies every formatting element that was left open for each following
// paragraph. So a small page can use the memory of the whole machine. costly refuses
// such pages before they are parsed.
const (
	maxPageCost = 256 << 20 // maximum bytes of the copies
	nodeCost    = 160       // bytes of one copy
	attrCost    = 48        // and of each of its attributes
	maxRoots    = 32        // html and body tags, whose attributes are merged each time
	// maxTwins is how many elements of the same kind a parser leaves open, and
	// maxAnchors how many links.
	maxTwins   = 3
	maxAnchors = 52
	maxParts   = 4 << 20 // bytes of a parsed page
)

var errCostlyPage = errors.New("the html leaves too many elements open")

const formatting = `a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u`

var (
	// inlineTag matches a tag that neither changes how the following text is parsed,
	// nor hides anything.
	inlineTag = regexp.MustCompile(`(?i)^<(/?)(` + formatting + `|br|img|span|sub|sup|wbr)` +
		"((?:\\s+[^\\s\"'<>/=`]+(?:\\s*=\\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\\s\"'<>`]+))?)*)\\s*/?>")
	formattingName = regexp.MustCompile(`(?i)^(?:` + formatting + `)$`)
	formattingTag  = regexp.MustCompile(`(?i)^<(` + formatting + `)[\s/>]`)
	rootTag        = regexp.MustCompile(`(?i)^<(?:html|body)[\s/>]`)
)

// openTag is a formatting element that can be open.
type openTag struct {
	name, text string
	cost       int
}

// pageCost counts the cost of parsing a page. It never counts an element as closed that
// a parser may see as open. An end tag counts only if there are just text and simple
// tags between it and its start tag.
type pageCost struct {
	fresh []openTag      // an end tag can still close them
	stuck map[string]int // the others, with the number of elements with the same text
	links int            // number of links
	open  int            // cost of one copy of all open elements
	total int
	roots int
}

// costly returns an error for a page that is too expensive to parse.
func costly(page string) error {
	c := &pageCost{stuck: map[string]int{}}
	for rest := page; ; {
		at := strings.IndexByte(rest, '<')
		if at < 0 {
			return nil
		}
		rest = rest[at:]
		c.see(rest[:tagEnd(rest)], len(page))
		// Copies can be made for both the tag and the text after it.
		if c.total += 2 * c.open; c.total > maxPageCost || c.roots > maxRoots {
			return errCostlyPage
		}
		rest = rest[1:]
	}
}

// tagEnd returns where a simple tag at the start of text would end.
func tagEnd(text string) int {
	end := strings.IndexAny(text[1:], "<>")
	if end < 0 {
		return len(text)
	}
	return end + 2
}

// see counts the tag at the start of text.
func (c *pageCost) see(text string, size int) {
	m := inlineTag.FindStringSubmatch(text)
	if m == nil {
		c.stick()
		if rootTag.MatchString(text) {
			c.roots++
		}
		if f := formattingTag.FindStringSubmatch(text); f != nil {
			// The number of attributes is unknown.
			c.open += nodeCost + attrCost*size/2
		}
		return
	}
	name := strings.ToLower(m[2])
	switch {
	case !formattingName.MatchString(name):
	case m[1] == "":
		t := openTag{name, m[0], nodeCost + attrCost*len(strings.Fields(m[3])) + len(m[0])}
		c.fresh = append(c.fresh, t)
		c.open += t.cost
	default:
		c.shut(name)
	}
}

// shut closes the last open element with a name.
func (c *pageCost) shut(name string) {
	for i, t := range slices.Backward(c.fresh) {
		if t.name == name {
			c.fresh = slices.Delete(c.fresh, i, i+1)
			c.open -= t.cost
			return
		}
	}
}

// stick counts all elements as open from now on.
func (c *pageCost) stick() {
	for _, t := range c.fresh {
		c.open -= t.cost
		c.keep(t)
	}
	c.fresh = c.fresh[:0]
}

// keep counts an element that stays open, unless a parser would drop it because of its
// duplicates.
func (c *pageCost) keep(t openTag) {
	if c.stuck[t.text] >= maxTwins || t.name == "a" && c.links >= maxAnchors {
		return
	}
	c.stuck[t.text]++
	c.open += t.cost
	if t.name == "a" {
		c.links++
	}
}
