package render

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// Reading a page makes a copy of every formatting element that was left open for
// each paragraph after it, so a small page can take the memory of the whole
// machine. costly refuses such pages before anybody reads them.
const (
	maxPageCost = 256 << 20 // bytes that the copies may take at most
	nodeCost    = 160       // bytes of one copy
	attrCost    = 48        // and of each of its attributes
	maxRoots    = 32        // html and body tags, whose attributes are joined each time
	// maxTwins is how many elements of the same kind a parser keeps open, and
	// maxAnchors how many links.
	maxTwins   = 3
	maxAnchors = 52
	maxParts   = 4 << 20 // bytes of a page that was read
)

var errCostlyPage = errors.New("the html leaves too many elements open")

const formatting = `a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u`

var (
	// inlineTag is a tag that neither changes how what follows is read, nor hides
	// anything.
	inlineTag = regexp.MustCompile(`(?i)^<(/?)(` + formatting + `|br|img|span|sub|sup|wbr)` +
		"((?:\\s+[^\\s\"'<>/=`]+(?:\\s*=\\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\\s\"'<>`]+))?)*)\\s*/?>")
	formattingName = regexp.MustCompile(`(?i)^(?:` + formatting + `)$`)
	formattingTag  = regexp.MustCompile(`(?i)^<(` + formatting + `)[\s/>]`)
	rootTag        = regexp.MustCompile(`(?i)^<(?:html|body)[\s/>]`)
)

// openTag is a formatting element that may be open.
type openTag struct {
	name, text string
	cost       int
}

// pageCost counts what reading a page may take. It never takes an element for
// closed that a parser may see open: only an end tag that follows its start tag
// with nothing but text and simple tags between them counts.
type pageCost struct {
	fresh []openTag      // an end tag may still close them
	stuck map[string]int // the others, how many of the same text
	links int            // of them
	open  int            // cost of one copy of all
	total int
	roots int
}

// costly returns an error for a page that would take too much to be read.
func costly(page string) error {
	c := &pageCost{stuck: map[string]int{}}
	for rest := page; ; {
		at := strings.IndexByte(rest, '<')
		if at < 0 {
			return nil
		}
		rest = rest[at:]
		c.see(rest[:tagEnd(rest)], len(page))
		// Both the tag and the text behind it may be copied for.
		if c.total += 2 * c.open; c.total > maxPageCost || c.roots > maxRoots {
			return errCostlyPage
		}
		rest = rest[1:]
	}
}

// tagEnd is where a simple tag at the beginning of text would end.
func tagEnd(text string) int {
	end := strings.IndexAny(text[1:], "<>")
	if end < 0 {
		return len(text)
	}
	return end + 2
}

// see counts the tag at the beginning of text.
func (c *pageCost) see(text string, size int) {
	m := inlineTag.FindStringSubmatch(text)
	if m == nil {
		c.stick()
		if rootTag.MatchString(text) {
			c.roots++
		}
		if f := formattingTag.FindStringSubmatch(text); f != nil {
			// How many attributes it has is anybody's guess.
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

// stick takes all elements for open from now on.
func (c *pageCost) stick() {
	for _, t := range c.fresh {
		c.open -= t.cost
		c.keep(t)
	}
	c.fresh = c.fresh[:0]
}

// keep counts an element that stays open, unless a parser would drop it for its
// twins.
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
