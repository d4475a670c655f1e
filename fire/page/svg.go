package page

import (
	"fmt"
	"strings"

	"github.com/dewrun/dew/fire/world"
)

// The size of one panel of the plot, in pixels.
const panelWidth, panelHeight, margin = 360, 150, 44

// SVG returns a plot of the measurements of a run: memory, open files and goroutines of
// dewd, and the disk usage of its root.
func SVG(r Report) string {
	panels := []struct {
		title, unit string
		value       func(world.Sample) float64
	}{
		{"Memory of dewd", "MB", func(s world.Sample) float64 { return s.Memory / 1e6 }},
		{"Open files of dewd", "", func(s world.Sample) float64 { return s.FDs }},
		{"Goroutines of dewd", "", func(s world.Sample) float64 { return s.Goroutines }},
		{"Disk usage of the root", "MB", func(s world.Sample) float64 { return s.Disk / 1e6 }},
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n", 2*(panelWidth+margin), 2*(panelHeight+margin)+20)
	fmt.Fprintf(&b, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"8\" y=\"14\">Seed %d, %d faults, %d apps, %.0f s</text>\n", r.Seed, r.Total(), r.Apps, r.Seconds)
	for i, p := range panels {
		x, y := i%2*(panelWidth+margin)+margin, i/2*(panelHeight+margin)+36
		panel(&b, r.Samples, plot{x: x, y: y, title: p.title, unit: p.unit, value: p.value})
	}
	b.WriteString("</svg>\n")
	return b.String()
}

type plot struct {
	x, y        int
	title, unit string
	value       func(world.Sample) float64
}

// panel draws one curve with its largest value and the duration.
func panel(b *strings.Builder, samples []world.Sample, p plot) {
	top, end := 1.0, 1.0
	for _, s := range samples {
		top, end = max(top, p.value(s)), max(end, s.Seconds)
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n", p.x, p.y-4, p.title)
	fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#ccc\"/>\n", p.x, p.y, panelWidth, panelHeight)
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.0f %s</text>\n", p.x-3, p.y+9, top, p.unit)
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">0</text>\n", p.x-3, p.y+panelHeight)
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.0f s</text>\n", p.x+panelWidth, p.y+panelHeight+12, end)
	var points []string
	for _, s := range samples {
		px := float64(p.x) + s.Seconds/end*panelWidth
		py := float64(p.y) + panelHeight - p.value(s)/top*panelHeight
		points = append(points, fmt.Sprintf("%.1f,%.1f", px, py))
	}
	fmt.Fprintf(b, "<polyline points=\"%s\" fill=\"none\" stroke=\"#0969da\" stroke-width=\"1.5\"/>\n", strings.Join(points, " "))
}
