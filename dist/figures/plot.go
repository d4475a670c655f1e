package main

import (
	"fmt"
	"html"
	"strings"
)

// The plot in pixels: text on the left, bars on the right.
const (
	textWidth = 520
	barWidth  = 330 // of twice the goal
	lineStep  = 22
	topMargin = 34
)

// plot returns a bar for each figure that has a goal. Its length is the figure divided by
// its goal, or the reverse for a lower limit, and at most 2. The line in the middle is the goal.
func plot(lines []line) string {
	var bars strings.Builder
	y := topMargin
	for _, l := range lines {
		if l.goal == 0 {
			continue
		}
		color := "#2e7d32"
		if l.margin() > 1 {
			color = "#c62828"
		}
		text := strings.ReplaceAll(l.what, "`", "")
		if l.against != "" {
			text += ", against " + l.against
		}
		fmt.Fprintf(&bars, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="12" fill="%s"><title>%.2f of the goal</title></rect>`+"\n",
			textWidth-8, y+10, html.EscapeString(shorten(text)), textWidth, y, min(l.margin(), 2)*barWidth/2, color, l.margin())
		y += lineStep
	}
	goal := textWidth + barWidth/2
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11" fill="#333">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="%[3]d" y="16" text-anchor="middle">the goal</text><text x="%[4]d" y="16" text-anchor="end">twice</text>
%[5]s<line x1="%[3]d" x2="%[3]d" y1="22" y2="%[6]d" stroke="#333" stroke-dasharray="4 3"/>
</svg>
`, textWidth+barWidth+20, y+10, goal, textWidth+barWidth, bars.String(), y)
}

// shorten cuts a text that is too long for the plot.
func shorten(s string) string {
	r := []rune(s)
	if len(r) > 88 {
		return string(r[:87]) + "…"
	}
	return s
}
