package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"muster/sim/soak"
)

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
		soak.Await(t, patience, want, func() string {
			found = append(found, b.complaints()...)
			if !slices.ContainsFunc(found, func(line string) bool { return strings.Contains(line, want) }) {
				return strings.Join(found, "\n")
			}
			return ""
		})
	}
	b.allow(".") // the rest of the same
}
