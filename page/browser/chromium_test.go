package browser

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"muster/sim/needs"
)

// chromium is the one browser of these tests. The first that needs it starts it; every test has tabs of its own, in a
// browser context of its own, so that they share neither cookies nor caches.
var chromium struct {
	parent context.Context
	once   sync.Once
	ctx    context.Context
	stop   []context.CancelFunc
	err    error
}

func startChromium(path string) {
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
	}
	for _, flag := range []string{
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync",
		"disable-default-apps", "disable-dev-shm-usage", "disable-extensions", "disable-background-timer-throttling",
		"disable-renderer-backgrounding", "disable-backgrounding-occluded-windows", "hide-scrollbars",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	options = append(options, chromedp.Flag("force-color-profile", "srgb"))
	allocator, stop := chromedp.NewExecAllocator(chromium.parent, options...)
	ctx, cancel := chromedp.NewContext(allocator)
	chromium.stop = []context.CancelFunc{cancel, stop}
	chromium.ctx, chromium.err = ctx, chromedp.Do(ctx)
}

func stopChromium() {
	for _, stop := range chromium.stop {
		stop()
	}
}

// tab is a page in the browser. It notes everything that must not happen: errors on the console, exceptions, violations
// of the Content-Security-Policy, dialogs, and requests to anywhere but the server. The test fails if there was any.
type tab struct {
	t       *testing.T
	ctx     context.Context
	origin  string // of the server: "http://127.0.0.1:8090"
	answers sync.WaitGroup

	mu       sync.Mutex
	wrong    []string
	allowed  []*regexp.Regexp
	requests []string // of this tab, without the origin
}

// newTab opens an empty tab for a server.
func newTab(t *testing.T, origin string) *tab {
	t.Helper()
	path := needs.Chromium(t)
	chromium.once.Do(func() { startChromium(path) })
	if chromium.err != nil {
		t.Fatal(chromium.err)
	}
	b := &tab{t: t, origin: strings.TrimSuffix(origin, "/")}
	ctx, cancel := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.note))
	b.ctx = ctx
	t.Cleanup(b.answers.Wait)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		for _, line := range b.complaints() {
			t.Errorf("in the browser: %s", line)
		}
	})
	if err := chromedp.Do(ctx); err != nil { // with the context of the tab: it lasts as long
		t.Fatal(err)
	}
	b.do(
		command(network.Enable, network.EnableParams{}),
		command(audits.Enable, struct{}{}),
		command(log.Enable, struct{}{}),
	)
	b.view(1280, 900)
	return b
}

// note is called for every event of the tab.
func (b *tab) note(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		b.request(ev.Request.URL)
	case *network.EventWebSocketCreated:
		b.request(ev.URL)
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, fmt.Sprint("exception: ", describe(ev.ExceptionDetails)))
	case *runtime.EventConsoleAPICalled:
		b.wrong = append(b.wrong, fmt.Sprintf("console.%s: %s", ev.Type, texts(ev.Args)))
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" || ev.Entry.Level == "warning" {
			b.wrong = append(b.wrong, fmt.Sprintf("%s %s: %s", ev.Entry.Source, ev.Entry.Level, ev.Entry.Text))
		}
	case *audits.EventIssueAdded:
		if d := ev.Issue.Details; d != nil && d.ContentSecurityPolicyIssueDetails != nil {
			csp := d.ContentSecurityPolicyIssueDetails
			b.wrong = append(b.wrong, fmt.Sprintf("CSP: %s %s", csp.ViolatedDirective, csp.BlockedURL))
		}
	case *page.EventJavascriptDialogOpening:
		b.wrong = append(b.wrong, "dialog: "+ev.Message)
		b.answers.Go(func() { // not here: see chromedp.Listen
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		})
	case *page.EventWindowOpen:
		b.wrong = append(b.wrong, "window: "+ev.URL)
	}
}

func describe(e *runtime.ExceptionDetails) string {
	if e.Exception != nil && e.Exception.Description != "" {
		return e.Exception.Description
	}
	return e.Text
}

func texts(args []*runtime.RemoteObject) string {
	var all []string
	for _, a := range args {
		all = append(all, string(a.Value)+a.Description)
	}
	return strings.Join(all, " ")
}

// request notes a request. The lock is held.
func (b *tab) request(url string) {
	rest, ok := strings.CutPrefix(url, b.origin+"/")
	if !ok && url != "about:blank" {
		b.wrong = append(b.wrong, "request: "+url)
	}
	b.requests = append(b.requests, "/"+rest)
}

// allow says that what matches is no error in this test.
func (b *tab) allow(expr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, regexp.MustCompile(expr))
}

// complaints are what was wrong so far and is not allowed. They are told once.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := slices.DeleteFunc(b.wrong, func(line string) bool {
		return slices.ContainsFunc(b.allowed, func(a *regexp.Regexp) bool { return a.MatchString(line) })
	})
	b.wrong = nil
	return left
}
