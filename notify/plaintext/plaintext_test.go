package plaintext

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestFromHTML(t *testing.T) {
	for _, tt := range []struct{ name, page, want string }{
		{"nothing", "", ""},
		{"words", "<p>Hello,\n   <b>wor</b>ld &amp; all</p>", "Hello, world & all"},
		{"paragraphs", "<p>One</p><p>Two<br>Three</p><div>Four</div><div>Five</div>", "One\n\nTwo\nThree\n\nFour\nFive"},
		{"heading", "<h1>Your invoice</h1><p>It is ready.</p><h3>More</h3>text", "Your invoice\n============\n\nIt is ready.\n\nMore\n\ntext"},
		{"link", `Read <a href="https://example.com/a?b=1&amp;c=2">the docs</a>.`, "Read the docs (https://example.com/a?b=1&c=2)."},
		{"link that shows its URL", `<a href="https://example.com">https://example.com</a> <a href="mailto:jo@example.com">jo@example.com</a>`, "https://example.com jo@example.com"},
		{"link around an image", `<a href="https://example.com"><img alt="Shop" src="x"></a> and <a href="https://b"><img></a>`, "Shop (https://example.com) and https://b"},
		{"links without a target", `<a href="#top">Top</a> <a href="javascript:alert(1)">Run</a> <a name=x>Name</a>`, "Top Run Name"},
		{"list", "<p>Buy</p><ul><li>milk<li>eggs<ol><li>small</li><li>large</li></ol></ul>Done", "Buy\n\n- milk\n- eggs\n  1. small\n  2. large\n\nDone"},
		{"table", "<table><tr><th>Item</th><th>Price</th></tr><tr><td>Milk</td><td>1 &euro;</td></tr></table>", "Item | Price\nMilk | 1 €"},
		{"pre", "<pre>a\n  b  c\n</pre>d", "a\n  b  c\n\nd"},
		{"hidden", "<head><title>T</title><style>p{}</style></head><body>x<script>alert('<p>')</script>y<!-- z --></body>", "xy"},
		{"head without an end", "<head><title>T</title><body>x", "x"},
		{"rule and spaces", "a<hr>b&nbsp;c \t d", "a\n\n----\n\nb c d"},
		{"not closed", "<p>a<b>b<a href=https://x>c", "abc (https://x)"},
		{"control characters", "a\x1b[31mb\x00c", "a [31mb c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := FromHTML(tt.page); got != tt.want {
				t.Errorf("text = %q, want %q", got, tt.want)
			}
		})
	}
}

// No page takes long, and no text is longer than the limit.
func TestFromHTMLIsBounded(t *testing.T) {
	for _, part := range []string{"<ul><li>", "<a href=x>", "<table><tr><td>", "<pre>", "&amp;", "<h1>x", "<a href=xxxxxxxxxxxxxxxx>a</a>", "</h1>"} {
		page := "<h1>" + strings.Repeat("x", 256<<10) + strings.Repeat(part, 512<<10/len(part))
		began := time.Now()
		if got := FromHTML(page); len(got) > MaxOutput {
			t.Errorf("%s: %d bytes", part, len(got))
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: took %s", part, took)
		}
	}
}

// The text of any page is valid, has no control characters, and is not longer than the
// limit.
func FuzzFromHTML(f *testing.F) {
	f.Add("<p>Hello <a href='https://example.com'>you</a></p><ul><li>a<li>b</ul>")
	f.Add("<table><tr><td>1<td>2<tr><td>3</table><pre>\n x</pre><h1>T</h1><head>")
	f.Fuzz(func(t *testing.T, page string) {
		text := FromHTML(page)
		if len(text) > MaxOutput || !utf8.ValidString(text) || text != strings.TrimSpace(text) {
			t.Errorf("text = %q", text)
		}
		if at := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); at >= 0 {
			t.Errorf("text has a control character at %d: %q", at, text)
		}
	})
}
