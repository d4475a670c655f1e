// Package plaintext makes the text part of a mail from its HTML.
package plaintext

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// MaxOutput is the maximum size of a text in bytes. A longer one is cut off.
const MaxOutput = 1 << 20

// FromHTML returns the text of a page: links as "text (url)", items of lists with a mark,
// headings underlined, and the cells of a table row in one line. It reads the page in one
// pass, without a tree, so that no page is expensive.
func FromHTML(page string) string {
	w := &writer{heading: -1}
	z := html.NewTokenizer(strings.NewReader(page))
	for w.out.Len() < MaxOutput {
		switch z.Next() {
		case html.ErrorToken:
			return w.finish()
		case html.TextToken:
			w.text(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			w.start(z.Token())
		case html.EndTagToken:
			name, _ := z.TagName()
			w.end(atom.Lookup(name))
		}
	}
	return w.finish()
}

// writer writes the text of a page.
type writer struct {
	out   strings.Builder
	lines int  // newlines at the end of out
	space bool // a space is due before the next word

	hidden atom.Atom // the element whose content is not shown; 0: none
	pre    int       // depth of pre elements
	lists  []int     // numbers of the next items; -1: the list has no numbers
	cells  int       // cells of the current table row

	link      string // URL of the current link
	linkStart int    // where its text starts
	heading   int    // where the text of the current heading starts; -1: none
}

// maxLists is the depth of lists that are indented.
const maxLists = 8

// paragraphs are the elements with an empty line before and after them. blocks only
// start a line.
var (
	paragraphs = map[atom.Atom]bool{
		atom.P: true, atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true, atom.Table: true,
		atom.Blockquote: true, atom.Pre: true, atom.Hr: true,
	}
	blocks = map[atom.Atom]bool{
		atom.Div: true, atom.Section: true, atom.Article: true, atom.Header: true, atom.Footer: true, atom.Main: true, atom.Nav: true,
		atom.Aside: true, atom.Form: true, atom.Fieldset: true, atom.Address: true, atom.Tr: true, atom.Dl: true, atom.Dt: true, atom.Dd: true,
		atom.Figure: true, atom.Figcaption: true, atom.Caption: true, atom.Center: true,
	}
	// hidden are the elements whose content is not text for readers.
	hidden = map[atom.Atom]bool{
		atom.Head: true, atom.Script: true, atom.Style: true, atom.Template: true, atom.Title: true, atom.Noscript: true, atom.Textarea: true,
		atom.Select: true, atom.Iframe: true, atom.Object: true, atom.Svg: true,
	}
)

func (w *writer) start(t html.Token) {
	switch {
	case w.hidden != 0:
		if w.hidden == atom.Head && t.DataAtom == atom.Body { // head was not closed
			w.hidden = 0
		}
		return
	case hidden[t.DataAtom]:
		if t.Type == html.StartTagToken {
			w.hidden = t.DataAtom
		}
		return
	case paragraphs[t.DataAtom]:
		w.newline(2)
	case blocks[t.DataAtom]:
		w.newline(1)
	}
	switch t.DataAtom {
	case atom.Br:
		w.write("\n")
	case atom.Hr:
		w.write("----\n\n")
	case atom.Pre:
		w.pre++
	case atom.H1, atom.H2:
		w.heading = w.out.Len()
	case atom.Ul, atom.Ol:
		w.startList(t.DataAtom == atom.Ol)
	case atom.Li:
		w.item()
	case atom.Tr:
		w.cells = 0
	case atom.Td, atom.Th:
		if w.cells++; w.cells > 1 {
			w.write(" | ")
			w.space = false
		}
	case atom.Img:
		w.text(attribute(t, "alt"))
	case atom.A:
		w.endLink()
		w.link, w.linkStart = attribute(t, "href"), w.out.Len()
	}
}

func (w *writer) end(name atom.Atom) {
	if w.hidden != 0 {
		if w.hidden == name {
			w.hidden = 0
		}
		return
	}
	switch name {
	case atom.A:
		w.endLink()
	case atom.H1, atom.H2:
		w.underline()
	case atom.Pre:
		w.pre = max(w.pre-1, 0)
	case atom.Ul, atom.Ol:
		if n := len(w.lists); n > 0 {
			w.lists = w.lists[:n-1]
		}
		w.newline(min(2, 2-min(len(w.lists), 1)))
	}
	switch {
	case paragraphs[name]:
		w.newline(2)
	case blocks[name]:
		w.newline(1)
	}
}

func (w *writer) startList(numbered bool) {
	w.newline(2 - min(len(w.lists), 1))
	next := -1
	if numbered {
		next = 1
	}
	w.lists = append(w.lists, next)
}

// item starts an item of a list.
func (w *writer) item() {
	w.newline(1)
	n := len(w.lists)
	mark := "- "
	if n > 0 && w.lists[n-1] > 0 {
		mark = fmt.Sprintf("%d. ", w.lists[n-1])
		w.lists[n-1]++
	}
	w.write(strings.Repeat("  ", min(max(n-1, 0), maxLists)) + mark)
	w.space = false
}

// endLink writes the URL of the current link after its text.
func (w *writer) endLink() {
	url := strings.TrimSpace(w.link)
	w.link = ""
	lower := strings.ToLower(url)
	if url == "" || strings.HasPrefix(url, "#") || strings.HasPrefix(lower, "javascript:") || strings.HasPrefix(lower, "data:") {
		return
	}
	shown := strings.TrimSpace(w.out.String()[w.linkStart:])
	switch {
	case shown == url || shown == strings.TrimPrefix(lower, "mailto:"):
	case shown == "":
		w.text(" " + oneLine(url) + " ")
	default:
		w.text(" (" + oneLine(url) + ")")
	}
}

// underline ends a heading.
func (w *writer) underline() {
	start := w.heading
	w.heading = -1 // it ends once, however often the page says so
	if start < 0 {
		return
	}
	text := strings.TrimSpace(w.out.String()[start:])
	if text == "" || strings.Contains(text, "\n") {
		return
	}
	const longest = 72
	w.newline(1)
	w.write(strings.Repeat("=", min(len([]rune(text)), longest)))
}

// text writes the words of a text. Spaces between words become one, except in pre.
func (w *writer) text(s string) {
	if w.hidden != 0 {
		return
	}
	s = strings.Map(printable, s)
	if w.pre > 0 {
		w.write(s)
		return
	}
	for i, word := range strings.FieldsFunc(s, unicode.IsSpace) {
		first, _ := firstRune(s)
		if i > 0 || unicode.IsSpace(first) {
			w.space = true
		}
		w.word(word)
	}
	if last := strings.TrimRightFunc(s, unicode.IsSpace); len(last) < len(s) {
		w.space = true
	}
}

func firstRune(s string) (rune, bool) {
	for _, r := range s {
		return r, true
	}
	return 0, false
}

func (w *writer) word(word string) {
	if w.space && w.out.Len() > 0 && w.lines == 0 && !strings.HasSuffix(w.out.String(), " ") {
		w.out.WriteByte(' ')
	}
	w.space = false
	w.write(word)
}

// printable drops characters that no text has.
func printable(r rune) rune {
	if r == '\u00a0' {
		return ' '
	}
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		if r == '\r' {
			return -1
		}
		return ' '
	}
	return r
}

func (w *writer) write(s string) {
	if s == "" {
		return
	}
	w.out.WriteString(s)
	trimmed := strings.TrimRight(s, "\n")
	if trimmed == "" {
		w.lines += len(s)
	} else {
		w.lines = len(s) - len(trimmed)
	}
	if w.lines > 0 {
		w.space = false
	}
}

// newline ends the line so that n newlines follow the last word.
func (w *writer) newline(n int) {
	w.space = false
	if w.out.Len() > 0 && w.lines < n {
		w.write(strings.Repeat("\n", n-w.lines))
	}
}

// finish returns the text without spaces at its ends.
func (w *writer) finish() string {
	w.endLink()
	text := w.out.String()
	lines := strings.Split(strings.ToValidUTF8(text[:min(len(text), MaxOutput)], ""), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRightFunc(line, unicode.IsSpace)
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func attribute(t html.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), "%20") }
