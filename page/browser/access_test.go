package browser

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// accessScript finds what a reader of the page could trip over.
//
//go:embed testdata/access.js
var accessScript string

// accessible checks the page as it is shown, in light and dark, and on screens of all widths.
func (b *tab) accessible(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, width := range []int64{1280, 390, 320} {
			b.view(width, 844)
			b.settle()
			for _, problem := range eval[[]string](b, accessScript) {
				b.t.Errorf("%s, %s, %d pixels: %s", name, scheme, width, problem)
			}
			if width != 320 {
				b.picture(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			}
		}
	}
	b.scheme("light")
	b.view(1280, 900)
	b.named(name)
}

// settle waits until the page is drawn and nothing moves any more.
func (b *tab) settle() {
	b.t.Helper()
	eval[bool](b, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
		Promise.allSettled(document.getAnimations().map(a => a.finished)).then(() => done(true)))))`)
}

// named checks that a screen reader has a name for everything that it must have one for.
func (b *tab) named(page string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	const need = " button link checkbox radio textbox searchbox combobox listbox option img image progressbar region " +
		"table heading navigation search form tab menuitem "
	found := map[string]int{}
	for _, n := range tree.Nodes {
		role := axText(n.Role)
		if n.Ignored || !strings.Contains(need, " "+role+" ") {
			continue
		}
		found[role]++
		if strings.TrimSpace(axText(n.Name)) == "" {
			b.t.Errorf("%s: a %s without a name", page, role)
		}
	}
	if found["link"] == 0 || found["heading"] == 0 {
		b.t.Errorf("%s: a screen reader finds only %v", page, found)
	}
}

func axText(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

// focusable goes through the page with the Tab key until it comes around, at most n times, and checks that one sees
// where one is. It returns where it was.
func (b *tab) focusable(page string, n int) []string {
	b.t.Helper()
	b.open(page)
	var order []string
	for range n {
		b.keys(kb.Tab)
		b.settle()
		at := eval[struct {
			What, Outline, Shadow string
			Width                 float64
			Seen                  bool
		}](b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect()
			const around = e.closest("label"), a = around ? around.querySelector(".chip") || e : e, t = getComputedStyle(a)
			return {
				What: e.tagName + " " + (e.id || e.getAttribute("href") || e.name || ""),
				Outline: s.outlineStyle !== "none" ? s.outlineStyle : t.outlineStyle,
				Width: Math.max(parseFloat(s.outlineWidth), parseFloat(t.outlineWidth)),
				Shadow: t.boxShadow, Seen: r.bottom > 0 && r.top < innerHeight && r.width > 0,
			}
		})()`)
		if strings.HasPrefix(at.What, "BODY") {
			return order
		}
		order = append(order, at.What)
		if (at.Outline == "none" || at.Width < 1) && at.Shadow == "none" {
			b.t.Errorf("%s: nobody sees that the focus is at %s", page, at.What)
		}
		if !at.Seen {
			b.t.Errorf("%s: the focus is out of sight, at %s", page, at.What)
		}
	}
	return order
}

// TestAccessibleFindsWhatIsWrong: the script above, on a page that has everything wrong.
func TestAccessibleFindsWhatIsWrong(t *testing.T) {
	b := newTab(t, "http://127.0.0.1:1")
	b.allow(".")
	eval[bool](b, `(() => {
		document.documentElement.innerHTML = '<body><h3>x</h3><p style="color:#999;background:#fff">grey</p>' +
			'<p id=a>1</p><p id=a aria-labelledby=none>2</p><img src="data:,"><a href="#nowhere" tabindex=3>l</a>' +
			'<table><tr><td>1</table><div style="width:3000px">wide</div><nav><li>i</nav><input onclick="x()">'
		return true
	})()`)
	found := strings.Join(eval[[]string](b, accessScript), "\n")
	for _, want := range []string{
		"text has a contrast of 2.85", "a second element with this id", "names none", "no alt", "leads to nothing",
		"a tabindex above 0", "without headings", "pixels wide", "without a name", "outside of a list", "no lang",
		"its title is", "0 times main", "0 times h1", "level 3 after 0", "cannot be zoomed", "inline style",
		"an attribute onclick", "a control of",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("%q was not found:\n%s", want, found)
		}
	}
}
