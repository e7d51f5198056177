package browser

import (
	"bytes"
	"context"
	"image/png"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
)

// testOtherMedia: on paper, and in colours that the system chooses, the state of everything is still told by words.
func testOtherMedia(t *testing.T, w *town, s *server) {
	const told = `[...document.querySelectorAll("#headline h1, .badge, .tag, .bad-text, .bar b")]` +
		`.filter(e => e.checkVisibility({ visibilityProperty: true, opacityProperty: true })).map(e => e.innerText.trim())`
	b := newTab(t, s.url)
	b.view(794, 1123) // A4
	for _, name := range []string{"overview", "stale", "group", "queue", "history"} {
		b.media("", "light", "none")
		b.open(views()[name])
		b.live()
		b.settle()
		screen := eval[[]string](b, told)
		if len(screen) == 0 {
			t.Fatalf("%s tells no state", name)
		}
		b.media("", "dark", "active")
		b.settle()
		if diff := cmp.Diff(screen, eval[[]string](b, told)); diff != "" {
			t.Errorf("%s in forced colours (-screen +forced):\n%s", name, diff)
		}
		b.picture(name + "-forced")
		b.bar(name)
		b.media("print", "dark", "none")
		b.settle()
		if diff := cmp.Diff(screen, eval[[]string](b, told)); diff != "" {
			t.Errorf("%s printed (-screen +paper):\n%s", name, diff)
		}
		b.onPaper(name)
	}
}

// onPaper checks the page as it is printed.
func (b *tab) onPaper(name string) {
	b.t.Helper()
	b.picture(name + "-print")
	b.bar(name)
	for _, problem := range eval[[]string](b, accessScript) {
		if strings.Contains(problem, "contrast") || strings.Contains(problem, "pixels wide") {
			b.t.Errorf("%s printed: %s", name, problem)
		}
	}
	const ages = `[...document.querySelectorAll("main time")].filter(e => e.checkVisibility() &&
		getComputedStyle(e, "::after").content !== JSON.stringify(e.title)).map(e => e.textContent)`
	if found := eval[[]string](b, ages); len(found) > 0 {
		b.t.Errorf("%s printed: ages without a time: %q", name, found)
	}
	if colour := eval[string](b, "getComputedStyle(document.body).backgroundColor"); colour != "rgb(255, 255, 255)" {
		b.t.Errorf("%s is printed on %s", name, colour)
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	made, err := chromedp.Call(ctx, page.PrintToPDF, page.PrintToPDFParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	if n := bytes.Count(made.Data, []byte("/Type /Page\n")); n < 1 || n > 2 {
		b.t.Errorf("%s is printed on %d sheets", name, n)
	}
}

// bar checks that the bar of a batch that is completed is drawn: browsers leave out backgrounds on paper, and where
// colours are forced.
func (b *tab) bar(name string) {
	b.t.Helper()
	const first = `(() => {
		const r = document.querySelector("progress[value='6']")?.getBoundingClientRect()
		return r ? [r.left + r.width / 2, r.top + scrollY + r.height / 2] : []
	})()`
	at := eval[[]float64](b, first)
	if name != "queue" && len(at) == 0 {
		return
	}
	drawn, err := png.Decode(bytes.NewReader(b.drawn()))
	if err != nil {
		b.t.Fatal(err)
	}
	if drawn.At(int(at[0]), int(at[1])) == drawn.At(1, 1) {
		b.t.Errorf("%s: the bar of a batch shows nothing", name)
	}
}
