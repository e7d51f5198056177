package page

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource/job"
	"muster/view"
)

// reader is an open stream.
type reader struct {
	t     *testing.T
	lines *bufio.Reader
}

// open opens the stream of a page that has a version.
func (s *testServer) open(page string, version uint64) *reader {
	s.t.Helper()
	u := fmt.Sprintf("%s/stream?u=%s&v=%d", s.url, url.QueryEscape(page), version)
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, u, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("stream: %s", answer.Status)
	}
	return &reader{s.t, bufio.NewReader(answer.Body)}
}

// event reads the next event that tells of a change.
func (r *reader) event() []byte {
	r.t.Helper()
	for {
		var event bytes.Buffer
		for {
			line, err := r.lines.ReadBytes('\n')
			if err != nil {
				r.t.Fatal(err)
			}
			if event.Write(line); len(line) == 1 {
				break
			}
		}
		if !bytes.HasPrefix(event.Bytes(), []byte("retry:")) && !bytes.HasPrefix(event.Bytes(), []byte("event: alive")) {
			return event.Bytes()
		}
	}
}

// version is that of a page.
func (s *testServer) version(page string) uint64 {
	s.t.Helper()
	_, body, _ := s.get(page)
	_, rest, _ := strings.Cut(body, `data-version="`)
	number, _, _ := strings.Cut(rest, `"`)
	v, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// show puts another board: live are the live workers of its only jobs.
func (s *testServer) show(jobs, live int) {
	b := &Board{At: time.Now(), Servers: "zk", Connected: true}
	for i := range jobs {
		b.Resources = append(b.Resources, aJob(fmt.Sprintf("job-%05d", i), 100, 100, live, 0))
	}
	s.keeper.board.put(b)
}

func TestAChangeReachesAllWhoLook(t *testing.T) {
	s := startServer(t, Config{})
	s.show(10, 100)
	first := s.version("/")
	var all []*reader
	for range 20 {
		all = append(all, s.open("/", first))
	}
	s.show(10, 99)
	begun := time.Now()
	var events []string
	for _, r := range all {
		events = append(events, string(r.event()))
	}
	if long := time.Since(begun); long > 30*time.Second { // on a busy machine; it is drawn within renderEvery
		t.Errorf("a change took %s", long)
	}
	if len(slices.Compact(events)) != 1 {
		t.Errorf("not all got the same: %q", events)
	}
	p := parsePatch(t, []byte(events[0]))
	if p.Version <= first || !strings.Contains(events[0], "99") {
		t.Errorf("the patch: %+v", p)
	}
	if n := s.hub.count(); n != 1 {
		t.Errorf("%d views of one page", n)
	}
	if n := s.streams.count(); n != 20 {
		t.Errorf("%d streams, not 20", n)
	}
	// A page that was loaded before the change gets what it lacks; one of another process is loaded again.
	if got := s.open("/", first).event(); string(got) != events[0] {
		t.Errorf("who comes back gets %q", got)
	}
	if got := s.open("/", 1).event(); !strings.HasPrefix(string(got), "event: reload\n") {
		t.Errorf("a page of another process gets %q", got)
	}
}

// TestAPageThatCame: it is not there, then it is, and an answer is of the session that there is.
func TestAPageThatCame(t *testing.T) {
	s := startServer(t, Config{})
	s.show(0, 0)
	d, err := s.keeper.detail("/jobs/prod/job-00000", "")
	if err != nil {
		t.Fatal(err)
	}
	d.shown.put(nil)
	const page = "/resource/jobs/prod/job-00000"
	if code, _, _ := s.get(page); code != http.StatusNotFound {
		t.Errorf("before: %d", code)
	}
	s.show(1, 100)
	s.await(page, http.StatusOK)
	old := &Detail{Resource: aJob("job-00000", 100, 100, 4, 0)}
	d.shown.put(old)
	l := &link{}
	s.keeper.link.put(l)
	answered := make(chan string)
	go func() {
		_, body, _ := s.get("/api/status/jobs/prod/job-00000")
		answered <- body
	}()
	d.shown.put(&Detail{Resource: aJob("job-00000", 100, 100, 1, 0), link: l})
	if body := <-answered; !strings.Contains(body, `"live": 1`) {
		t.Errorf("of an earlier session: %s", body)
	}
}

// await waits until a page is answered with a code.
func (s *testServer) await(page string, code int) {
	s.t.Helper()
	for got := 0; got != code; got, _, _ = s.get(page) {
		if s.t.Context().Err() != nil {
			s.t.Fatalf("%s: never %d", page, code)
		}
	}
}

// TestWhatWasNotReadIsSaid: and nobody is said to be missing for it.
func TestWhatWasNotReadIsSaid(t *testing.T) {
	b := sample()
	j := aJob("job-00000", 4, 4, 4, 0)
	b.Resources = []view.Resource{j}
	d := &Detail{Resource: j, Problem: "children /x: permission denied"}
	var all strings.Builder
	for _, f := range newViews().render(Request{View: Resource, Path: j.Path}, b, d).Fragments {
		all.WriteString(f.HTML)
	}
	if got := all.String(); !strings.Contains(got, "permission denied") || strings.Contains(got, "not joined yet") {
		t.Error(got)
	}
}

// TestWhoIsTooFarBehindLoadsAgain: what is kept for those who are behind is bounded.
func TestWhoIsTooFarBehindLoadsAgain(t *testing.T) {
	d := &drawn{Rendered: Rendered{Version: 1}}
	for range 3 * maxBehind {
		behind := newest(append(slices.Clip(d.behind), patch{d.Version, []byte("x")}))
		d = &drawn{Rendered: Rendered{Version: d.Version + 1}, behind: behind}
	}
	if len(d.behind) != maxBehind {
		t.Errorf("%d patches are kept, not %d", len(d.behind), maxBehind)
	}
	if events, ok := d.since(d.Version - 3); !ok || len(events) != 3 {
		t.Errorf("three behind: %d events, %v", len(events), ok)
	}
	if _, ok := d.since(1); ok {
		t.Error("the first version can still be brought here")
	}
	large := patch{1, make([]byte, maxBehindBytes)}
	if kept := newest([]patch{{0, []byte("x")}, large, large}); len(kept) != 1 {
		t.Errorf("%d large patches are kept, not the last one alone", len(kept))
	}
}

// TestASlowReaderIsDropped: one that takes nothing is cut off, while another one gets each change at once.
func TestASlowReaderIsDropped(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{})
	const jobs = 1000
	s.show(jobs, 0)
	version := s.version("/")
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET /stream?u=%%2F&v=%d HTTP/1.1\r\nHost: localhost\r\n\r\n", version); err != nil {
		t.Fatal(err)
	}
	awake := s.open("/", version)
	for live := 1; s.dropped.Load() == 0; live++ {
		s.show(jobs, live%100)
		begun := time.Now()
		if p := parsePatch(t, awake.event()); len(p.Set) < jobs {
			t.Fatalf("the patch sets %d, not all %d rows", len(p.Set), jobs)
		}
		if long := time.Since(begun); long > writeTimeout*9/10 { // who waits for the slow one waits until it is dropped
			t.Errorf("the other reader waited %s", long)
		}
	}
	if n := s.streams.count(); n != 1 {
		t.Errorf("%d streams, not that of the other reader alone", n)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("its connection is still open")
	}
}

// TestViewsAreBounded: views that nobody looks at make room; if all are looked at, one more is refused.
func TestViewsAreBounded(t *testing.T) {
	s := startServer(t, Config{})
	s.show(3, 1)
	page := func(i int) string { return fmt.Sprint("/?q=word", i) }
	for i := range MaxViews + 10 {
		if code, _, _ := s.get(page(i)); code != http.StatusOK {
			t.Fatalf("page %d: %d", i, code)
		}
	}
	if n := s.hub.count(); n > MaxViews {
		t.Errorf("%d views, more than %d", n, MaxViews)
	}
	for i := range MaxViews {
		s.open(page(i), 1)
	}
	code, body, h := s.get("/?q=more")
	if code != 503 || h.Get("Retry-After") == "" || !strings.Contains(body, "too many") {
		t.Errorf("one too many: %d %q", code, body)
	}
	if code, _, _ := s.get(page(1)); code != http.StatusOK {
		t.Errorf("a page that is open: %d", code)
	}
}

// BenchmarkView draws 10,000 jobs of which one has changed, and makes the patch.
func BenchmarkView(b *testing.B) {
	v := newViews()
	var all []view.Resource
	for i := range 10_000 {
		all = append(all, aJob(fmt.Sprintf("job-%05d", i), 8, 8, 8, 0))
	}
	r, _ := parseRequest(&url.URL{Path: "/"})
	old := v.render(r, &Board{Connected: true, Resources: all}, nil)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		changed := slices.Clone(all)
		changed[n%len(all)].Observed.Counts = job.Counts(8, n%8)
		next := v.render(r, &Board{Connected: true, Resources: changed}, nil)
		if patchEvent(old, next) == nil {
			b.Fatal("nothing has changed")
		}
		old = next
	}
}

// dom is what a browser holds: the children of each slot, and the HTML of each fragment.
type dom struct {
	children map[string][]string
	html     map[string]string
}

func domOf(r Rendered) dom {
	d := dom{map[string][]string{}, map[string]string{}}
	for _, f := range r.Fragments {
		d.children[f.In] = append(d.children[f.In], f.ID)
		d.html[f.ID] = f.HTML
	}
	return d
}

// take takes a fragment from where it is.
func (d dom) take(id string) {
	for slot, ids := range d.children {
		d.children[slot] = slices.DeleteFunc(slices.Clone(ids), func(one string) bool { return one == id })
		if len(d.children[slot]) == 0 {
			delete(d.children, slot)
		}
	}
	delete(d.html, id)
}

// apply does what page.js does.
func (d dom) apply(t *testing.T, p patchData) {
	for _, id := range p.Remove {
		d.take(id)
	}
	for _, s := range p.Set {
		d.take(s.ID)
		at := 0
		if s.After != "" {
			if at = slices.Index(d.children[s.In], s.After) + 1; at == 0 {
				t.Fatalf("%s comes after %s, which is not in %s", s.ID, s.After, s.In)
			}
		}
		d.children[s.In] = slices.Insert(slices.Clone(d.children[s.In]), at, s.ID)
		d.html[s.ID] = s.HTML
	}
}

// parsePatch reads an event of a stream.
func parsePatch(t *testing.T, event []byte) patchData {
	t.Helper()
	text, ok := bytes.CutPrefix(event, []byte("event: patch\ndata: "))
	text, ended := bytes.CutSuffix(text, []byte("\n\n"))
	if !ok || !ended || bytes.ContainsAny(text, "\r\n") {
		t.Fatalf("not one event: %q", event)
	}
	var p patchData
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPatchesTurnOneViewIntoTheNext: any view can become any other one.
func TestPatchesTurnOneViewIntoTheNext(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	view := func() Rendered {
		var r Rendered
		for _, i := range random.Perm(12)[:random.IntN(12)] {
			r.Fragments = append(r.Fragments, Fragment{
				ID: fmt.Sprint("f", i), In: fmt.Sprint("slot", random.IntN(2)), HTML: fmt.Sprint("<p>\n", random.IntN(3)),
			})
		}
		return r
	}
	old := view()
	have := domOf(old)
	for round := range 2000 {
		next := view()
		next.Version = uint64(round + 1)
		if event := patchEvent(old, next); event != nil {
			p := parsePatch(t, event)
			if p.Version != next.Version {
				t.Fatalf("the patch is to version %d, not %d", p.Version, next.Version)
			}
			have.apply(t, p)
		}
		if d := cmp.Diff(domOf(next), have, cmp.AllowUnexported(dom{})); d != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, d)
		}
		old = next
	}
}

// TestAPatchHoldsOnlyWhatChanged: one changed row of many is one row; a row that moves is one row.
func TestAPatchHoldsOnlyWhatChanged(t *testing.T) {
	rows := func(names string) (r Rendered) {
		for _, name := range strings.Fields(names) {
			r.Fragments = append(r.Fragments, Fragment{ID: strings.ToLower(name), In: "rows", HTML: name})
		}
		return r
	}
	for _, c := range []struct{ name, old, next, set, remove string }{
		{"nothing", "a b c", "a b c", "", ""},
		{"changed", "a b c", "a B c", "b", ""},
		{"moved", "a b c d", "d a b c", "d", ""},
		{"inserted", "a b c", "a x b c", "x", ""},
		{"removed", "a b c", "a c", "", "b"},
		{"replaced", "a b c", "x y", "x y", "a b c"},
	} {
		set, remove := diff(rows(c.old), rows(c.next))
		var ids []string
		for _, s := range set {
			ids = append(ids, s.ID)
		}
		if got := strings.Join(ids, " "); got != c.set || strings.Join(remove, " ") != c.remove {
			t.Errorf("%s: set %q, remove %q; want %q and %q", c.name, got, remove, c.set, c.remove)
		}
	}
}
