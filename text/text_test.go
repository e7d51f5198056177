package text_test

import (
	"os/exec"
	"strings"
	"testing"

	"muster/text"
)

func TestShorten(t *testing.T) {
	for want, most := range map[string]int{"añb": 4, "añ…": 3, "a…": 2, "…": 0} {
		if got := text.Shorten("añb", most); got != want {
			t.Errorf("%d bytes: %q, want %q", most, got, want)
		}
	}
}

func TestEscape(t *testing.T) {
	for s, want := range map[string]string{
		"":                     "",
		"naïve 作業 ✓":           "naïve 作業 ✓",
		"a\x1b[31mb":           `a\x1b[31mb`,
		"a\nb\tc\rd":           `a\x0ab\x09c\x0dd`,
		"\u009b31m\x7f":        `\x9b31m\x7f`,
		"a\u202eb\u200bc":      `a\u202eb\u200bc`,
		"\xff\ufffd":           `\xff` + "\ufffd",
		"\U000e0001":           `\U000e0001`,
		"::error::x":           `\x3a:error::x`,
		"see  ::add-mask::x":   `see  \x3a:add-mask::x`,
		"\u00a0::x":            `\xa0::x`,
		"[::1]:2181 a::b :":    "[::1]:2181 a::b :",
		"a##[error]b###vso[":   `a#\x23[error]b#\x23#vso[`,
		strings.Repeat("a", 9): "aaaaaaaaa",
	} {
		if got := text.Escape(s); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
	if got, want := text.EscapeLines("a\n::x\n  ::y"), "a\n\\x3a:x\n  \\x3a:y"; got != want {
		t.Errorf("lines: %q, want %q", got, want)
	}
	if got, want := text.EscapeLines("a\x1b\n\nb\r\n"), `a\x1b`+"\n\n"+`b\x0d`+"\n"; got != want {
		t.Errorf("lines: %q, want %q", got, want)
	}
}

func TestOutput(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "\n\r\n": "", "a\n\n b\r\n": "a|| b", "\x1b[1;31mred\x1b[0m\x1b[K": "red", "a\tb": "a    b",
		" 1%\r50%\r99%\r\ndone": "99%|done", "\x1b]0;t\a\xff": "\x1b]0;t\a\xff", "100%\r": "100%",
	} {
		if got := strings.Join(text.Output(s), "|"); got != want {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "abc": 3, "naïve": 5, "nai\u0308ve": 5, "作業-1": 6, "😀": 2, "·": 1, "ｶ": 1,
	} {
		if got := text.Width(s); got != want {
			t.Errorf("%q takes %d columns, want %d", s, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "four": "four", "fives": "fiv…", "作業": "作業", "作業場": "作…", "a作業": "a作…", "nai\u0308v": "nai\u0308v",
	} {
		if got := text.Cut(s, 4); got != want || text.Width(got) > 4 {
			t.Errorf("%q is %q, want %q", s, got, want)
		}
	}
}

func TestCountsAndLists(t *testing.T) {
	for got, want := range map[string]string{
		text.Count(1, "job"):                       "1 job",
		text.Count(0, "job"):                       "0 jobs",
		text.Plural(1, "job is", "jobs are"):       "1 job is",
		text.Plural(2, "job is", "jobs are"):       "2 jobs are",
		text.List([]int{}, 2):                      "",
		text.List([]string{"a", "b"}, 2):           "a, b",
		text.List([]string{"a", "b", "c", "d"}, 2): "a, b and 2 more",
		text.List([]int{3, 4, 5}, 1):               "3 and 2 more",
		text.CountEach(nil):                        "",
		text.CountEach([]string{"job", "job"}):     "2 jobs",
		text.CountEach([]string{"job", "group"}):   "1 group and 1 job",
		text.CountEach([]string{"c", "a", "b"}):    "1 a, 1 b and 1 c",
		text.Size(1):                               "1 byte",
		text.Size(1023):                            "1023 bytes",
		text.Size(1025):                            "2 KiB",
		text.Size(1<<20 - 1):                       "1 MiB",
		text.Size(64 << 20):                        "64 MiB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"server", "servers", "max", "min", "Jobs", "作業"}
	for given, want := range map[string]string{
		"servers": "servers", "SERVERS": "servers", "serv": "server", "srevers": "servers", "mni": "min", "maxx": "max",
		"jobs": "Jobs", "job": "Jobs", "作務": "作業",
		"": "", "x": "", "se": "", "unlike": "", strings.Repeat("servers", 1000): "",
	} {
		if got := text.Nearest(given, known); got != want {
			t.Errorf("%q is near %q, want %q", given, got, want)
		}
	}
	if got := text.Nearest("bat", []string{"cat", "bad", "bar"}); got != "bad" {
		t.Errorf("of several: %q, want the first that begins alike", got)
	}
}

// TestShellWord: a shell reads the word as what it was.
func TestShellWord(t *testing.T) {
	for _, s := range []string{
		"", "a", "job.a", "/jobs/a", `job.a["x y"]`, "it's", "a\\b", "$HOME `id` $(id)", "a{b,c}", "*", "~", "a\tb\nc",
		"!x", "#a", "a;b&c|d<e>f",
	} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+text.ShellWord(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q typed as %s is %q, %v", s, text.ShellWord(s), out, err)
		}
	}
	for _, s := range []string{"a", "job.a", "/jobs/a-b_c"} {
		if got := text.ShellWord(s); got != s {
			t.Errorf("%q is quoted without need: %s", s, got)
		}
	}
}
