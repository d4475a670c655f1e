package render

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// The HTML parser copies every formatting element that was left open for each following
// paragraph. So a small page can use the memory of the whole machine. checkCost refuses
// such pages before they are parsed.
const (
	maxPageCost = 256 << 20 // maximum bytes of the copies
	nodeCost    = 160       // bytes of one copy
	attrCost    = 48        // and of each of its attributes
	maxRoots    = 32        // html and body tags, whose attributes are merged each time
	// maxDuplicates is how many elements of the same kind a parser leaves open, and
	// maxAnchors how many links.
	maxDuplicates = 3
	maxAnchors    = 52
	maxParts      = 4 << 20 // bytes of a parsed page
)

var errExpensivePage = errors.New("the HTML leaves too many elements open")

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
	closable []openTag      // an end tag can still close them
	leftOpen map[string]int // the others, with the number of elements with the same text
	links    int            // number of links
	open     int            // cost of one copy of all open elements
	total    int
	roots    int
}

// checkCost returns an error for a page that is too expensive to parse.
func checkCost(page string) error {
	c := &pageCost{leftOpen: map[string]int{}}
	for rest := page; ; {
		at := strings.IndexByte(rest, '<')
		if at < 0 {
			return nil
		}
		rest = rest[at:]
		c.addTag(rest[:tagEnd(rest)], len(page))
		// Copies can be made for both the tag and the text after it.
		if c.total += 2 * c.open; c.total > maxPageCost || c.roots > maxRoots {
			return errExpensivePage
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

// addTag counts the tag at the start of text.
func (c *pageCost) addTag(text string, size int) {
	m := inlineTag.FindStringSubmatch(text)
	if m == nil {
		c.leaveAllOpen()
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
		c.closable = append(c.closable, t)
		c.open += t.cost
	default:
		c.closeTag(name)
	}
}

// closeTag closes the last open element with a name.
func (c *pageCost) closeTag(name string) {
	for i, t := range slices.Backward(c.closable) {
		if t.name == name {
			c.closable = slices.Delete(c.closable, i, i+1)
			c.open -= t.cost
			return
		}
	}
}

// leaveAllOpen counts all elements as open from now on.
func (c *pageCost) leaveAllOpen() {
	for _, t := range c.closable {
		c.open -= t.cost
		c.leaveOpen(t)
	}
	c.closable = c.closable[:0]
}

// leaveOpen counts an element that stays open, unless a parser would drop it because of
// its duplicates.
func (c *pageCost) leaveOpen(t openTag) {
	if c.leftOpen[t.text] >= maxDuplicates || t.name == "a" && c.links >= maxAnchors {
		return
	}
	c.leftOpen[t.text]++
	c.open += t.cost
	if t.name == "a" {
		c.links++
	}
}
