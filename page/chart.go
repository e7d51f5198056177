package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster/text"
)

// chart is one measure over the last hour. It is drawn as SVG, with its axes and a number as text beside it.
type chart struct {
	ID, Title, Class string    // Class: its colour in the style sheet
	Says             string    // the number beside it
	Rate             bool      // its values are by second
	Per              string    // " in 30s", of what is counted in each slot
	Values           []float64 // of each slot, the oldest first; NaN: not known

	first int64 // slot
}

func newChart(id, title, class string, last int64) chart {
	return chart{
		ID: id, Title: title, Class: class, Says: "not known", first: last - slotCount + 1,
		Values: slices.Repeat([]float64{math.NaN()}, int(slotCount)),
	}
}

// latest is the newest value that is known; NaN: none is.
func (c chart) latest() float64 {
	for _, v := range slices.Backward(c.Values) {
		if !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

// chartView is a chart as it is drawn: a slot is 1 wide, and the whole chartHeight high. The style sheet stretches it.
type chartView struct {
	chart
	Top, Desc     string // the end of the vertical axis; what the drawing shows, in words
	Bars, Unknown string // paths
}

const (
	chartHeight = 100
	mostGaps    = 3 // that Desc names
)

func (c chart) view() chartView {
	most := 0.0
	for _, v := range c.Values {
		if v > most { // not NaN
			most = v
		}
	}
	top := c.top(most)
	v := chartView{chart: c, Top: c.word(top)}
	var gaps []string
	for x := 0; x < len(c.Values); {
		end := x + 1
		for end < len(c.Values) && (c.Values[end] == c.Values[x] || math.IsNaN(c.Values[end]) && math.IsNaN(c.Values[x])) {
			end++
		}
		switch value := c.Values[x]; {
		case value > 0:
			v.Bars += bar(x, end, max(1, int(math.Round(value/top*chartHeight))))
		case math.IsNaN(value) && (x < len(c.Values)-1 || x == 0): // the newest slot may only have begun
			v.Unknown += bar(x, end, chartHeight)
			gaps = append(gaps, c.unknown(x, end))
		}
		x = end
	}
	if len(gaps) > mostGaps {
		gaps = append(gaps[:1], fmt.Sprintf("Then %d times not known.", len(gaps)-1))
	}
	v.Desc = strings.Join(append([]string{"At most " + c.word(most) + c.Per + "."}, gaps...), " ")
	return v
}

// bar is a path that draws a bar from x to end.
func bar(x, end, height int) string {
	return fmt.Sprintf("M%d %dv-%dH%dv%dz", x, chartHeight, height, end, height)
}

// unknown says which time is not known.
func (c chart) unknown(x, end int) string {
	clock := func(i int) string {
		return time.Unix((c.first+int64(i))*int64(slotLength/time.Second), 0).UTC().Format("15:04Z")
	}
	switch {
	case end == len(c.Values) && x == 0:
		return "Nothing is known yet."
	case x == 0:
		return "Not known before " + clock(end) + "."
	case end == len(c.Values):
		return "Not known since " + clock(x) + "."
	}
	return "Not known from " + clock(x) + " to " + clock(end) + "."
}

// top is a round number for the end of an axis: 1, 2, 5, 10 and so on; of what is no rate, at least 1.
func (c chart) top(most float64) float64 {
	unit := 1.0
	if c.Rate && most > 0 {
		unit = math.Pow(10, math.Floor(math.Log10(most)))
	}
	for ; ; unit *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if most <= n*unit {
				return n * unit
			}
		}
	}
}

// word is a value for people.
func (c chart) word(v float64) string {
	if c.Rate {
		return rate(v)
	}
	return text.Thousands(int(v))
}

func (p *painter) charts(all []chart) {
	if len(all) == 0 {
		return
	}
	p.add(mainSlot, "hour", nil)
	for _, c := range all {
		p.add("charts", "chart", c.view())
	}
}
