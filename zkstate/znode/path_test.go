package znode

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPaths(t *testing.T) {
	for got, want := range map[string]string{
		Live("/jobs", "a", "[::1]:7000"):     "/jobs/a/[::1]:7000",
		Record("job", "/jobs", "a"):          "/jobs/.muster/job/a",
		Gate("/jobs", "g"):                   "/jobs/.muster/run/g/gate",
		ID("/jobs", "g", 7):                  "/jobs/.muster/run/g/id/n-0000000007",
		NewID("/jobs", "g"):                  "/jobs/.muster/run/g/id/n-",
		ByIdentity("/jobs", "g", "w-1"):      "/jobs/.muster/run/g/by/w-1",
		NewEnd("/jobs", "g"):                 "/jobs/.muster/run/g/end/d-",
		BarrierFloor("/jobs", "g", "load"):   "/jobs/.muster/run/g/barrier/load",
		Attempt("/jobs", "g", "load", 12, 1): "/jobs/.muster/run/g/barrier/load/12",
		Ensemble("/.muster"):                 "/.muster/ensemble",
		Lock("/.muster", "etl"):              "/.muster/lock/etl",
		Applied("/.muster", "p1"):            "/.muster/applied/p1",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestSeqReadsWhatZooKeeperAppends(t *testing.T) {
	for name, want := range map[string]int32{
		"n-0000000000":  0,
		"n-0000000042":  42,
		"n-2147483647":  1<<31 - 1,
		"n--2147483648": -1 << 31, // the counter has overflowed
		"n--000000005":  -5,
	} {
		got, err := Seq(name, "n-")
		if err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{
		"", "n-", "n-1", "n-00000000001", "n-2147483648", "n-+000000001", "d-0000000001", "n-000000000x",
		"n--0000000005",
	} {
		if got, err := Seq(name, "n-"); err == nil {
			t.Errorf("%q read as %d", name, got)
		}
	}
}

func TestNumbersOfIDsAndCompletions(t *testing.T) {
	if n, err := IDNumber(ID("/r", "g", 19999)); n != 19999 || err != nil {
		t.Errorf("id %d, %v", n, err)
	}
	if n, err := EndNumber("d-0000000003"); n != 3 || err != nil {
		t.Errorf("end %d, %v", n, err)
	}
	if n, err := IDNumber("n--2147483648"); err == nil {
		t.Errorf("an overflowed id read as %d", n)
	}
}

func TestCheckIdentity(t *testing.T) {
	for _, s := range []string{
		"10.0.0.1:7000", "[::1]:7000", "[fe80::1%eth0]:80", "worker-3", "...", "naïve host", "作業-1",
		strings.Repeat("é", 255),
	} {
		if err := CheckIdentity(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{
		"", ".", "..", ".muster", "a/b", "a\n", "a\x00", "\x1b[2J", "a\u0085", "\u202e", "\ue000", "\ufffd", "😀",
		"a\xff", strings.Repeat("é", 256),
	} {
		if CheckIdentity(s) == nil {
			t.Errorf("%q passes", s)
		}
	}
}

func TestCheckToken(t *testing.T) {
	if err := CheckToken("7f3A_9-z"); err != nil {
		t.Error(err)
	}
	var passed []string
	for _, s := range []string{"", ".", "..", "a/b", "a b", "é", strings.Repeat("a", 65)} {
		if CheckToken(s) == nil {
			passed = append(passed, s)
		}
	}
	if d := cmp.Diff([]string(nil), passed); d != "" {
		t.Errorf("passed (-want +got):\n%s", d)
	}
}
