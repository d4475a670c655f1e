package render

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// expensivePages returns small pages that would need a gigabyte or more to parse.
func expensivePages() map[string]string {
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return b.String()
	}
	tail := strings.Repeat("<p>x", 4<<10)
	return map[string]string{
		"left open":           "<p>" + many("<b a#>", 400) + "</p>" + tail,
		"links and others":    "<p>" + many(`<font href="#">`, 400) + "</p>" + tail,
		"closed elsewhere":    "<p>" + many("<i a#>", 400) + "</p><table><td>" + many("</i>", 400) + "</table>" + tail,
		"closed in a comment": "<p>" + many("<u a#>", 400) + "<!--" + many("</u>", 400) + "--></p>" + tail,
		"closed in a value":   "<p>" + many(`<s a# b="</s>">`, 400) + "</p>" + tail,
		"closed in a style":   "<p>" + many("<tt a#>", 400) + "<style>" + many("</tt>", 400) + "</style></p>" + tail,
		"nested too deep":     "<p>" + many("<em a#>"+strings.Repeat("<div>", 10)+"</em>"+strings.Repeat("</div>", 10), 400) + "</p>" + tail,
		"hidden by a style":   "<p><svg><style></svg>" + many("<b a#>", 400) + "</p>" + tail,
		"attributes":          "<p><b " + many("a# ", 10_000) + "></p>" + tail,
		"long values":         `<p><b a="` + strings.Repeat("x", 60_000) + `"></p>` + tail,
		"bodies":              many("<body a#>", 100),
	}
}

func TestExpensivePages(t *testing.T) {
	for name, page := range expensivePages() {
		if _, err := SplitHTML(page); !errors.Is(err, errExpensivePage) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}

func TestInexpensivePages(t *testing.T) {
	row := `<tr><td style="color: red"><font face="Arial"><b>Bold</b> and <i>italic</i> <a href=https://example.com/x?a=b&c=d><img src="x.png"></a></font></td></tr>`
	for name, page := range map[string]string{
		"a long table":    "<html><body><table>" + strings.Repeat(row, 500) + "</table></body></html>",
		"left open":       strings.Repeat("<p><b>never closed", 1000),
		"links of blocks": strings.Repeat(`<a href="https://example.com/a/long/path" style="color: blue"><div>one</div></a>`, 500),
		"a sign":          "<p>1 < 2 and <b>3 > 2</b>",
	} {
		if parts, err := SplitHTML(page); err != nil || parts.BodyContent == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever is not refused has few elements.
func FuzzCheckCost(f *testing.F) {
	f.Add("<p><b a><b b></p><p>x<p>y", 50)
	f.Add("<b a=1><table><td></b><p>x", 400)
	f.Add("<svg><style><b a></style></b>", 20)
	f.Fuzz(func(t *testing.T, page string, times int) {
		if len(page) > 256 || times < 0 || times > 500 {
			t.Skip()
		}
		page = strings.Repeat(page, times)
		if checkCost(page) != nil {
			return
		}
		root, err := html.Parse(strings.NewReader(page))
		if err != nil {
			return
		}
		n := 0
		for range root.Descendants() {
			n++
		}
		if n > maxPageCost/nodeCost {
			t.Errorf("%d elements", n)
		}
	})
}
