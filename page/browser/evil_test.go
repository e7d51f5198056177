package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Names that would do something if the page took them for anything but text. What they do is to set "hacked".
const (
	evilImage  = `<img src=x onerror=hacked=1>`
	evilScript = `"'><script>hacked=1</script>`
	evilSVG    = `</title></textarea><svg/onload=hacked=1>`
	evilURL    = `javascript:hacked=1`
)

// evilNames are names of znodes beside jobs, as any client can make them.
func evilNames() []string {
	return []string{
		evilImage, strings.ReplaceAll(evilScript, "/", "\\"), evilURL, `"onmouseover="hacked=1`, "'`${hacked=1}{{.}}",
		"\u202etxt.exe", "a\u2066b\u2069c", "שלום עולם", "⚡☠⁉", "e\u0301\u0301\u0301\u0301",
		"a\u00a0b\u200bc\ufeff", "%2e%2e", "..%2f..%2fetc", "?q=<b>&status=stale#main", "#main", "a+b c", `back\slash`,
		"&lt;b&gt;", "<!--",
		"--><b>", "constructor", "__proto__", strings.Repeat("W", 255), strings.Repeat("m ", 100) + "m",
	}
}

// evilWorld is a ZooKeeper in which everything has such a name.
func evilWorld(t *testing.T) *world {
	w := newWorld(t, zkserver.Options{})
	redis, err := redisserver.Start(t.Context(), redisserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Stop() })
	w.environ = []string{"USER=" + evilImage}
	w.apply("evil", fmt.Sprintf("%q, %q", "/jobs", "/r"+evilImage), fmt.Sprintf(`job "victim" {
  root    = "/jobs"
  workers = 4
}
job "inner" {
  root    = %q
  workers = 1
}
job %q {
  root    = "/jobs"
  workers = 1
}
group "club" {
  root = "/jobs"
  leader "main" {}
  cron "tick" {
    schedule = "@yearly"
  }
}
queue "line" {
  root  = "/jobs"
  redis = "redis://%s/0"
}
`, "/r"+evilImage, strings.Repeat("w", 128), redis.Addr()))
	w.evilNodes()
	w.evilProcesses()
	return w
}

func (w *world) create(path string, body []byte, mode zkconn.Mode) {
	w.t.Helper()
	if _, err := w.s.Create(w.t.Context(), path, body, mode, zkconn.World(zkconn.PermAll)); err != nil {
		w.t.Fatal(err)
	}
}

// evilNodes writes what muster would not write.
func (w *world) evilNodes() {
	w.t.Helper()
	for _, name := range evilNames() {
		w.create("/jobs/"+name, []byte(evilScript), zkconn.Persistent)
	}
	record := znode.Record("job", "/jobs", "victim")
	body, stat, err := w.s.Get(w.t.Context(), record)
	if err != nil {
		w.t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		w.t.Fatal(err)
	}
	fields["by"] = evilScript
	declaration := fields["job"].(map[string]any)
	declaration["address"] = evilSVG
	declaration["labels"] = map[string]string{evilImage: evilScript, "bidi": "\u202eabc", "emoji": "🔥👩‍👧‍👦"}
	if body, err = json.Marshal(fields); err == nil {
		_, err = w.s.Set(w.t.Context(), record, body, stat.Version)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.evilHistory("/.muster/stack/evil/history")
	w.create("/.muster/stack/"+evilImage, []byte(`{"roots":["/jobs"]}`), zkconn.Persistent)
}

// evilHistory adds entries like the one that is there.
func (w *world) evilHistory(dir string) {
	w.t.Helper()
	names, _, err := w.s.Children(w.t.Context(), dir)
	if err != nil || len(names) != 1 {
		w.t.Fatal(names, err)
	}
	body, _, err := w.s.Get(w.t.Context(), dir+"/"+names[0])
	if err != nil {
		w.t.Fatal(err)
	}
	for i, at := range []string{
		"https://ci.example/run?a=1&b=%3Cscript%3E", evilURL, "data:text/html,<script>hacked=1</script>", evilScript,
		"https://ci.example/" + evilScript, "https://ann:secret@ci.example/run", "//ci.example/run", "https:ci.example",
	} {
		var entry map[string]any
		if err := json.Unmarshal(body, &entry); err != nil {
			w.t.Fatal(err)
		}
		entry["by"], entry["actor"], entry["ci"], entry["commit"] = evilImage, evilScript, evilSVG, evilImage
		entry["url"], entry["plan"] = at, evilScript
		entry["replaced"], entry["deleted"] = []string{evilScript}, []string{"/jobs/" + evilURL}
		changed, err := json.Marshal(entry)
		if err != nil {
			w.t.Fatal(err)
		}
		w.create(fmt.Sprintf("%s/h-%010d", dir, 1000+i), changed, zkconn.Persistent)
	}
	w.create(dir+"/h-0000002000", []byte(evilScript), zkconn.Persistent)
}

// evilProcesses joins what processes can join as.
func (w *world) evilProcesses() {
	w.t.Helper()
	for i, identity := range []string{evilImage, `"'>hacked=1`} {
		w.start("joined", "worker", "--root", "/jobs", "--job", "victim", "--identity", identity,
			"--run", `"><svg/onload=hacked=1>`, "--advertise", fmt.Sprintf("10.0.0.1:%d", 7000+i))
	}
	live, err := znode.EncodeWorker(znode.Worker{ID: znode.NoID, IP: evilImage, Port: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	w.create("/jobs/victim/\u202elive", live, zkconn.Ephemeral)
	g := w.generation("job", "/jobs", "victim")
	if _, there, err := w.s.Exists(w.t.Context(), znode.Barriers("/jobs", g)); err == nil && !there {
		w.create(znode.Barriers("/jobs", g), nil, zkconn.Persistent)
	}
	round := znode.Barriers("/jobs", g) + "/" + evilImage + "/0"
	w.create(filepath.Dir(round), []byte("0"), zkconn.Persistent)
	w.create(round, nil, zkconn.Persistent)
	w.create(round+"/a", nil, zkconn.Persistent)
	w.create(round+"/c", nil, zkconn.Persistent)
	w.create(round+"/st", []byte(`{"n":4,"mode":"durable"}`), zkconn.Persistent)
	w.start("joined", "member", "--root", "/jobs", "--group", "club", "--identity", evilImage, "--version", "1.0.0",
		"--address", "[::1]:1", "--can", "main", "--", "sleep", "1000")
	w.evilMember()
	w.evilRuns()
	w.start("", "executor", "line", "--root", "/jobs", "--identity", evilImage, "--parallel", "1", "--",
		"sh", "-c", `read n; printf '%s \033[31mred \342\200\256\n' "$n" >&2; exit 65`)
	cmd := w.command("submit", "line", "--root", "/jobs", "--id", "batch")
	cmd.Stdin = strings.NewReader(evilScript + "\n" + evilSVG + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("submit: %v\n%s", err, out)
	}
	queue := w.generation("queue", "/jobs", "line")
	w.create(filepath.Join(znode.Batches("/jobs", queue), evilImage), []byte(evilScript), zkconn.Persistent)
}

// evilMember joins a group as no member does: with a version, an address and duties that are none. An operator of such
// a name pauses a duty.
func (w *world) evilMember() {
	w.t.Helper()
	const identity = `"onmouseover="hacked=1`
	present, err := znode.Encode(znode.Present{
		Nonce: "n", Version: evilScript, Address: evilURL, Can: []string{evilImage}, Ready: true,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	seat, err := znode.Encode(znode.Seat{Identity: identity, Nonce: "n", Assign: 1, Duties: []string{evilSVG}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.create(znode.Live("/jobs", "club", identity), present, zkconn.Ephemeral)
	w.create(znode.NewSeat("/jobs", w.generation("group", "/jobs", "club")), seat, zkconn.EphemeralSequential)
	w.run([]string{"group", "pause", "club/main", "--root", "/jobs"})
}

// evilRuns writes records of runs that no member writes, and some that it would.
func (w *world) evilRuns() {
	w.t.Helper()
	g := w.generation("group", "/jobs", "club")
	for _, folder := range []string{znode.Duty("/jobs", g, "tick"), znode.Ticks("/jobs", g, "tick")} {
		if _, there, err := w.s.Exists(w.t.Context(), folder); err == nil && !there {
			w.create(folder, nil, zkconn.Persistent)
		}
	}
	record := func(tail string) string {
		body, err := json.Marshal(znode.TickRecord{
			State: znode.TickFailed, By: evilSVG, Attempt: 2, Because: evilImage, Tail: tail, Exit: new(3),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		return string(body)
	}
	for i, body := range []string{
		record(evilScript + "\n\x1b[31mred\u202e\x00\r\n" + evilImage), record(strings.Repeat("x", 10_000)), evilScript,
		"",
		strings.ReplaceAll(record(""), `"tail":"",`, ""), strings.Replace(record(""), "failed", "<b>", 1),
	} {
		w.create(znode.Tick("/jobs", g, "tick", runDay(i)), []byte(body), zkconn.Persistent)
	}
}

func runDay(i int) time.Time { return time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC) }

// hostileRuns: each record is a mark and a row with and without scripts; a mark leads to the output; a new one is seen.
func (w *world) hostileRuns(b *tab, at string) {
	w.t.Helper()
	const marks = `document.querySelectorAll(".marks a").length === %[1]d &&
		document.querySelectorAll(".runs tbody").length === %[1]d`
	b.live()
	b.await("a mark and a row for each", fmt.Sprintf(marks, 6))
	b.accessible("hostile-group")
	eval[bool](b, `(document.querySelector(".marks a[href^='#o']").focus(), true)`)
	b.keys(kb.Enter)
	b.await("the output", `document.querySelector("pre:target").checkVisibility({ contentVisibilityAuto: true })`)
	if got := strings.TrimSpace(b.textOf("pre:target")); got != evilScript+"\nred\\u202e\\x00\n"+evilImage {
		w.t.Errorf("the output is %q", got)
	}
	b.picture("hostile-output")
	g := w.generation("group", "/jobs", "club")
	w.create(znode.Tick("/jobs", g, "tick", runDay(6)), []byte(`{"state":"lost"}`), zkconn.Persistent)
	b.await("the new run", fmt.Sprintf(marks, 7)+` && !!document.querySelector(".marks li:last-child .r-lost")`)
	without := newTab(w.t, b.origin)
	without.scripts(false)
	without.open(at)
	without.await("the same without scripts", fmt.Sprintf(marks, 7))
	without.picture("hostile-group-noscript")
}

// TestHostileNames: whatever something is called, it is text.
func TestHostileNames(t *testing.T) {
	w := evilWorld(t)
	s := w.serve()
	b := newTab(t, s.url)
	b.allow("404") // of what is not there
	see := func(at string, texts ...string) {
		t.Helper()
		b.open(at)
		for _, want := range texts {
			want = text.Visible(want)
			b.await(want, `document.documentElement.textContent.includes(`+quote(want)+`)`)
		}
		b.harmless(at)
	}
	resource := func(path string) string { return "/resource" + (&url.URL{Path: path}).EscapedPath() }
	var paths []string
	for _, name := range evilNames() {
		paths = append(paths, "/jobs/"+name)
	}
	see("/", slices.Concat(paths, []string{"/r" + evilImage + "/inner", "/jobs/" + strings.Repeat("w", 128), "evil"})...)
	see(resource("/jobs/victim"), evilImage, `"'>hacked=1`, "\u202elive", evilScript, evilSVG, "🔥", `\u202eabc`)
	see(resource("/jobs/club"), evilImage, evilScript, evilURL, `"onmouseover="hacked=1`, "paused by "+evilImage)
	w.hostileRuns(b, resource("/jobs/club"))
	see(resource("/jobs/line"), evilImage, evilScript+` \x1b[31mred \u202e`)
	see("/history", evilImage, evilScript, evilSVG)
	b.picture("hostile-history")
	out := eval[[]string](b, `[...document.querySelectorAll("main a[href^=http]")].map(a => a.href)`)
	if !slices.Equal(out, []string{"https://ci.example/run?a=1&b=%3Cscript%3E"}) {
		t.Errorf("the history links to %q", out)
	}
	if strings.Contains(b.text(), "secret") {
		t.Errorf("the history tells a password:\n%s", b.text())
	}
	see("/?" + url.Values{
		"q": {evilScript}, "status": {evilScript}, "sort": {evilImage}, "stack": {evilImage}, "kind": {evilURL},
	}.Encode())
	see("/resource/" + url.PathEscape(evilScript))
	b.open("/")
	links := eval[[]string](b, `[...document.querySelectorAll("#rows a.path")].map(a => a.href)`)
	if len(links) < len(paths) {
		t.Errorf("%d rows for %d names", len(links), len(paths))
	}
	hrefs := map[string]string{}
	for _, path := range paths {
		hrefs[path] = eval[string](b, `[...document.querySelectorAll("#rows a.path")].filter(`+
			`a => a.textContent === `+quote(text.Visible(path))+`).map(a => a.href).join(" ")`)
	}
	for path, at := range hrefs {
		b.open(strings.TrimPrefix(at, s.url))
		if h := eval[string](b, `document.querySelector("h1").textContent`); h != text.Visible(path) {
			t.Errorf("the link of %q leads to %q: %q", path, at, h)
		}
		b.harmless(path)
	}
	b.view(390, 844)
	b.open("/")
	b.picture("hostile-390")
	for _, problem := range eval[[]string](b, accessScript) {
		t.Errorf("hostile names, 390 pixels: %s", problem)
	}
}

// harmlessScript finds what is in the page and is not its own.
//
//go:embed testdata/harmless.js
var harmlessScript string

// harmless checks that the page has no element, attribute, link or script that is not its own.
func (b *tab) harmless(at string) {
	b.t.Helper()
	for _, found := range eval[[]string](b, harmlessScript) {
		b.t.Errorf("%s: %s", at, found)
	}
}
