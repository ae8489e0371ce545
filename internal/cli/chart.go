package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berthml/berth/client"
)

var sparks = []rune("▁▂▃▄▅▆▇█")

// spark is values as a line of bars. What is not a number is a blank.
func spark(values []float64) string {
	low, high, _ := extent(values)
	out := make([]rune, len(values))
	for i, v := range values {
		switch {
		case !finite(v):
			out[i] = ' '
		case high == low:
			out[i] = sparks[0]
		default:
			out[i] = sparks[min(len(sparks)-1, int((v-low)/(high-low)*float64(len(sparks))))]
		}
	}
	return string(out)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// extent is the least and the greatest of the finite values, if there are any.
func extent(values []float64) (low, high float64, ok bool) {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !finite(v) })
	if len(values) == 0 {
		return 0, 0, false
	}
	return slices.Min(values), slices.Max(values), true
}

// A curve is one line of a chart.
type curve struct {
	name   string
	points []client.Point // by step
}

// marks are the symbols of curves; with more curves they come again.
var marks = []rune("•x+o*#@%ABCDEFGHIJKLMNOPQRSTUVWXYZ")

// logarithm is the height of a value in a chart with a logarithmic scale: NaN where it has none.
func logarithm(v float64) float64 {
	if v <= 0 {
		return math.NaN()
	}
	return math.Log10(v)
}

// linear is the height of a value in other charts.
func linear(v float64) float64 { return v }

// chart draws curves into width by height characters, with their scales. What has no finite height
// is left out.
func chart(curves []curve, width, height int, heightOf func(float64) float64) string {
	var values, heights, steps []float64
	for _, c := range curves {
		for _, p := range c.points {
			steps = append(steps, float64(p.Step))
			if h := heightOf(p.Float()); finite(h) {
				values, heights = append(values, p.Float()), append(heights, h)
			}
		}
	}
	least, greatest, _ := extent(values)
	low, high, _ := extent(heights)
	first, last, _ := extent(steps)
	top, bottom := number(greatest), number(least)
	margin := max(len(top), len(bottom))
	width = max(10, width-margin-3)
	rows := make([][]rune, height)
	for i := range rows {
		rows[i] = []rune(strings.Repeat(" ", width))
	}
	at := func(v, low, high float64, n int) int {
		if high == low {
			return 0
		}
		return min(n-1, int((v-low)/(high-low)*float64(n-1)+0.5))
	}
	for i, c := range curves {
		for _, p := range c.points {
			if h := heightOf(p.Float()); finite(h) {
				rows[height-1-at(h, low, high, height)][at(float64(p.Step), first, last, width)] = marks[i%len(marks)]
			}
		}
	}
	var b strings.Builder
	for i, row := range rows {
		label := ""
		switch i {
		case 0:
			label = top
		case height - 1:
			label = bottom
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%*s │ %s", margin, label, string(row)), " ") + "\n")
	}
	from, to := number(first), number(last)
	fmt.Fprintf(&b, "%*s └─%s\n%*s   %s%*s\n", margin, "", strings.Repeat("─", width), margin, "", from, max(1, width-len(from)), to)
	if len(curves) > 1 {
		for i, c := range curves {
			fmt.Fprintf(&b, "%*s   %c %s\n", margin, "", marks[i%len(marks)], legible(c.name))
		}
	}
	return b.String()
}

// number is a value in few characters.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
