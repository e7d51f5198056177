package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"muster/sim/rig"
)

// command is a command of the DevTools protocol whose result does not matter.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, c, params)
		return chromedp.Void{}, err
	}
}

// do does something in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// open shows a page of the server: "/history".
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.origin + path))
}

// eval is the value of an expression of JavaScript. It works also where the page may not run scripts.
func eval[T any](b *tab, expr string) T {
	b.t.Helper()
	v, err := tryEval[T](b, expr)
	if err != nil {
		b.t.Fatalf("%s: %v", expr, err)
	}
	return v
}

func tryEval[T any](b *tab, expr string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expr, chromedp.EvalAwaitPromise))
}

// text is what a person reads on the page.
func (b *tab) text() string { b.t.Helper(); return eval[string](b, "document.body.innerText") }

// textOf is the text of the first element that a selector finds, "" if there is none.
func (b *tab) textOf(selector string) string {
	b.t.Helper()
	return eval[string](b, "(document.querySelector("+quote(selector)+")||{}).innerText||''")
}

// quote makes a literal of JavaScript.
func quote(s string) string {
	q, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return string(q)
}

// awaitText waits until the page shows all of these texts.
func (b *tab) awaitText(texts ...string) {
	b.t.Helper()
	shown := ""
	rig.Until(b.t, patience, "the page", func() string {
		shown, _ = tryEval[string](b, "document.body.innerText") // between two pages there is none
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				return fmt.Sprintf("%q is missing in:\n%.2000s", text, shown)
			}
		}
		return ""
	})
}

// await waits until an expression of JavaScript is true, and returns how long that took. It looks every 5 ms, in the
// page; and again in the next one if the page is left meanwhile.
func (b *tab) await(what, expr string) time.Duration {
	b.t.Helper()
	start := time.Now()
	const look = `new Promise(done => {
		const late = performance.now() + %LIMIT%, look = () => {
			let ok = false
			try { ok = !!(%EXPR%) } catch (e) { }
			if (ok || performance.now() > late) done(ok); else setTimeout(look, 5)
		}
		look()
	})`
	limit := strconv.FormatInt((patience - 10*time.Second).Milliseconds(), 10)
	rig.Until(b.t, patience, what, func() string {
		switch ok, err := tryEval[bool](b, strings.NewReplacer("%LIMIT%", limit, "%EXPR%", expr).Replace(look)); {
		case err != nil: // between two pages
			return err.Error()
		case !ok:
			return fmt.Sprintf("the page is\n%.2000s", b.text())
		}
		return ""
	})
	return time.Since(start)
}

// view sets the size of the window.
func (b *tab) view(width, height int64) { b.t.Helper(); b.do(chromedp.EmulateViewport(width, height)) }

// scheme sets what the person prefers: "light" or "dark".
func (b *tab) scheme(name string) {
	b.t.Helper()
	b.media("", name, "none")
}

// media sets for what the page is drawn: "print" or "" for the screen; light or dark; with forced colours "active" or
// "none".
func (b *tab) media(medium, scheme, forced string) {
	b.t.Helper()
	b.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media: medium, Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "forced-colors", Value: forced},
		},
	}))
}

// scripts turns the page's scripts on or off; pages that are opened from now on obey.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	b.do(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on}))
}

// keys types, as if on a keyboard.
func (b *tab) keys(keys string) {
	b.t.Helper()
	for _, key := range keys {
		if key < ' ' || key > '~' { // one of package kb
			b.do(chromedp.KeyEvent(string(key)))
			continue
		}
		// One event presses the key and types its character, as a keyboard does. chromedp sends two, of which a page
		// cannot prevent the second.
		b.do(
			command(input.DispatchKeyEvent, input.DispatchKeyEventParams{
				Type: input.DispatchKeyEventTypeKeyDown, Key: string(key), Text: string(key), UnmodifiedText: string(key),
			}),
			command(input.DispatchKeyEvent, input.DispatchKeyEventParams{
				Type: input.DispatchKeyEventTypeKeyUp, Key: string(key),
			}))
	}
}

// picture writes what is to be seen as a file to MUSTER_SCREENSHOTS, if that names a directory.
func (b *tab) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("MUSTER_SCREENSHOTS")
	if dir == "" {
		return
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), b.drawn(), 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// drawn is the whole page as a PNG.
func (b *tab) drawn() []byte {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// TestTabNotesWhatIsWrong: what every other test here relies on, with a page that does all of it.
func TestTabNotesWhatIsWrong(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src *")
		fmt.Fprint(w, `<!doctype html><title>x</title><link rel=icon href="data:,"><script src="/x.js"></script>`+
			`<script>document.title = "inline"</script><img src="/a.png"><p style="color: red">text`)
	})
	mux.HandleFunc("/x.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprint(w, `console.log("hello"); setTimeout(() => { alert("boo") }, 1)
			fetch("http://127.0.0.1:1/away"); throw new Error("thrown")`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	b := newTab(t, server.URL)
	b.open("/")
	var found []string
	for _, want := range []string{
		`console.log: "hello"`, "exception: Error: thrown", "dialog: boo", "CSP: img-src", "CSP: style-src-attr",
		"CSP: script-src-elem", "request: http://127.0.0.1:1/away",
	} {
		rig.Until(t, patience, want, func() string {
			found = append(found, b.complaints()...)
			if !slices.ContainsFunc(found, func(line string) bool { return strings.Contains(line, want) }) {
				return strings.Join(found, "\n")
			}
			return ""
		})
	}
	b.allow(".") // the rest of the same
}
