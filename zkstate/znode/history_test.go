package znode

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/apply/history"
)

func exampleEntry() history.Entry {
	at := time.Date(2026, 1, 31, 3, 4, 5, 0, time.UTC)
	e := history.Entry{
		Plan: "p1", Saved: true, Planned: map[string]int{"create": 1, "delete": 2}, Finished: at.Add(time.Minute),
		Done: map[string]int{"create": 1}, Results: map[string]int{"applied": 1, "refused": 2},
	}
	e.SetNames(nil, []string{"/jobs/a"})
	return e.Begin("runner@build", "1.0", history.Who{
		Actor: "ann", CI: "GitHub Actions", Commit: "c0ffee", URL: "https://ci.example/runs/7?a=1&b=2",
	}, at)
}

func TestEntryIsWrittenAndRead(t *testing.T) {
	want := Entry{Op: "o1", Entry: exampleEntry()}
	got, err := EncodeEntry(want)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := `{"op":"o1","by":"runner@build","actor":"ann","ci":"GitHub Actions","commit":"c0ffee",` +
		`"url":"https://ci.example/runs/7?a=1&b=2","muster_version":"1.0","plan":"p1","saved":true,` +
		`"started":"2026-01-31T03:04:05Z","finished":"2026-01-31T03:05:05Z","planned":{"create":1,"delete":2},` +
		`"done":{"create":1},"results":{"applied":1,"refused":2},"deleted":["/jobs/a"]}`
	if d := cmp.Diff(wantJSON, string(got)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	newer := strings.TrimSuffix(string(got), "}") + `,"approved_by":"bob","replaced":null}`
	for _, body := range []string{string(got), newer} {
		back, err := DecodeEntry([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, back); d != "" {
			t.Errorf("entry (-written +read):\n%s", d)
		}
	}
}

// TestLargestEntryFits: whatever somebody puts into the environment, an entry can be written.
func TestLargestEntryFits(t *testing.T) {
	for _, bad := range []string{`"`, `\`, "\x00", "\u2028", "<", "ü", "\xff"} {
		long := strings.Repeat(bad, 4096)
		var e history.Entry
		var names []string
		for range 200 {
			names = append(names, "/"+long[:60])
		}
		e.SetNames(names, names)
		e.Plan, e.Planned = strings.Repeat("p", maxToken), map[string]int{"create": 1 << 40, "delete": 1 << 40}
		e.Results = e.Planned
		e = e.Begin(long, long, history.Who{
			Actor: long, CI: long, Commit: long, URL: "https://ci.example/" + strings.Repeat("&", 1000),
		}, time.Now())
		body, err := EncodeEntry(Entry{Op: strings.Repeat("o", maxToken), Entry: e})
		if err != nil {
			t.Errorf("%q: %v", bad, err)
			continue
		}
		if _, err := DecodeEntry(body); err != nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDecodeEntrySaysWhatIsDamaged(t *testing.T) {
	for body, want := range map[string]string{
		"":                                 "empty",
		"{}":                               "who",
		"null":                             "who",
		`{"by":"a","started":"yesterday"}`: "yesterday",
		`{"by":"a"}`:                       "when",
		`{"by":["a"]}`:                     "by",
		`{"by":"a","started":"2026-01-31T03:04:05Z","planned":{"create":-1}}`: "-1",
		`{"by":"a","started":"2026-01-31T03:04:05Z","url":"javascript:x"}`:    "address",
		`{"by":"a","started":"2026-01-31T03:04:05Z","url":"https://u:p@x/"}`:  "address",
		`{"by":"` + strings.Repeat("a", 20000) + `"}`:                         "16384",
		"\xff": "UTF-8",
	} {
		if _, err := DecodeEntry([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want one with %q", body, err, want)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	body, err := EncodeEntry(Entry{Op: "o1", Entry: exampleEntry()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"by":"a","started":"2026-01-31T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(data)
		if err != nil || len(data) > history.MaxEntry/8 { // what is escaped may be longer than the input
			return
		}
		again, err := EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeEntry(again)
		if err != nil {
			t.Fatal(err)
		}
		if third, err := EncodeEntry(back); err != nil || string(third) != string(again) {
			t.Errorf("%s becomes %s, %v", again, third, err)
		}
	})
}
