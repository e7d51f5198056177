package znode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/apply/history"
	"muster/resource"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 999, time.UTC)

func TestReconcileIsWrittenAndRead(t *testing.T) {
	isWrittenAndRead(t, `{"op":"o1","config":"c1","seen":7,"all":{"why":"paused","by":"ann@desk",`+
		`"since":"2026-07-01T12:00:00Z","until":"2026-07-01T13:00:00Z","because":"the racks move"},`+
		`"held":{"/r/a":{"why":"terminated","by":"unknown","since":"2026-07-01T12:00:00Z","generation":"g","version":2}},`+
		`"shut":{"delete":{"why":"too many","by":"h","since":"2026-07-01T12:00:00Z"}},`+
		`"deleted":["2026-07-01T12:00:00Z"],"changed":{"/r/a":["2026-07-01T12:00:00Z"]}}`,
		Reconcile{
			Op: "o1", Config: "c1", Seen: 7,
			All:     &Hold{Why: Paused, By: "ann@desk", Since: noon, Until: noon.Add(time.Hour), Because: "the racks move"},
			Held:    map[string]Hold{"/r/a": {Why: Terminated, Since: noon, Generation: "g", Version: 2}},
			Shut:    map[string]Hold{"delete": {Why: TooMany, By: "h", Since: noon}},
			Deleted: []time.Time{noon}, Changed: map[string][]time.Time{"/r/a": {noon}},
		})
}

func TestDecodeReconcileSaysWhatIsDamaged(t *testing.T) {
	many := strings.Repeat(`"2026-07-01T12:00:00Z",`, maxCounted)
	isDamaged[Reconcile](t, map[string]string{
		"":                             "empty",
		`{"seen":-1}`:                  "seen",
		`{"all":{"why":"whim"}}`:       `all: why: "whim" is not known`,
		`{"held":{"/r/a":{"why":""}}}`: `/r/a: why`,
		`{"deleted":[` + many + many[:23-1] + `]}`: "counts too much",
		"\xff": "UTF-8",
	})
}

// TestLargestReconcileFits, whatever people have written.
func TestLargestReconcileFits(t *testing.T) {
	r := Reconcile{Held: map[string]Hold{}, Changed: map[string][]time.Time{}}
	long := strings.Repeat("\u2028", 1000)
	for i := range 2 * maxChanged {
		path := fmt.Sprintf("/%s/%d", strings.Repeat("r", 100), i)
		r.Changed[path] = []time.Time{noon.Add(time.Duration(i) * time.Second), noon.Add(time.Duration(i) * time.Second)}
		if i < MaxHolds {
			r.Held[path] = Hold{Why: Paused, By: long, Because: long, Since: noon}
		}
	}
	r.Forget(noon.Add(time.Minute))
	if _, kept := r.Changed[fmt.Sprintf("/%s/%d", strings.Repeat("r", 100), 2*maxChanged-1)]; !kept {
		t.Error("what was changed last is forgotten first")
	}
	body, err := Encode(r)
	if err == nil {
		_, err = Decode[Reconcile](body)
	}
	if err != nil {
		t.Error(err)
	}
	r.Held["/r/more"] = Hold{Why: Paused}
	if _, err := Encode(r); err == nil || !strings.Contains(err.Error(), "muster pause without names holds all") {
		t.Error(err)
	}
}

// TestForget: what is older than the window, and holds that have ended.
func TestForget(t *testing.T) {
	hold := Hold{Why: Paused, Until: noon.Add(time.Minute)}
	r := Reconcile{
		All: &hold, Held: map[string]Hold{"/r/a": hold, "/r/b": {Why: Contested}},
		Deleted: []time.Time{noon, noon.Add(time.Minute)}, Changed: map[string][]time.Time{"/r/a": {noon}},
	}
	if h := r.HeldAt("/r/b", noon); h == nil || h.Why != Paused {
		t.Errorf("held by %+v", h)
	}
	r.Forget(noon.Add(ChangeWindow))
	if len(r.Deleted) != 1 || len(r.Changed) != 0 || r.All != nil || len(r.Held) != 1 {
		t.Errorf("%+v", r)
	}
	if h := r.HeldAt("/r/b", noon); h == nil || h.Why != Contested {
		t.Errorf("held by %+v", h)
	}
}

// TestLeftAs: only an apply of a person, that has changed something, of another configuration, since the last look.
func TestLeftAs(t *testing.T) {
	entry := func(number, passes int, config string, done int) history.Found {
		e := history.Entry{Passes: passes, Config: config, Done: map[string]int{"update": done}}
		if done == 0 {
			e.Done = nil
		}
		return history.Found{Number: number, State: history.Finished, Entry: e}
	}
	for name, c := range map[string]struct {
		found []history.Found
		left  bool
	}{
		"none":             {nil, false},
		"another":          {[]history.Found{entry(9, 0, "p", 1)}, true},
		"below ours":       {[]history.Found{entry(9, 3, "c", 1), entry(8, 0, "p", 1)}, true},
		"the same":         {[]history.Found{entry(9, 0, "c", 1), entry(8, 0, "p", 1)}, false},
		"seen":             {[]history.Found{entry(6, 0, "p", 1)}, false},
		"nothing done":     {[]history.Found{entry(9, 0, "p", 0)}, false},
		"without a digest": {[]history.Found{entry(9, 0, "", 1)}, true},
		"it goes on": {[]history.Found{
			{Number: 9, State: history.Running, Entry: history.Entry{Planned: map[string]int{"create": 1}}},
		}, true},
		"it cannot be read": {[]history.Found{{Number: 9, State: history.Damaged}}, true},
	} {
		if _, left := (&Reconcile{Config: "c", Seen: 7}).LeftAs(c.found); left != c.left {
			t.Errorf("%s: left %v", name, left)
		}
	}
	lines := (&Reconcile{Config: "c", All: &Hold{Why: Paused, By: "ann", Since: noon}}).Lines(
		[]history.Found{entry(9, 0, "p", 1)}, noon)
	want := []string{
		"all: paused by ann since 2026-07-01 12:00:00",
		"all as  has applied it at 0001-01-01 00:00:00, but for repairs, until the files change",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

// TestEndedBy: a record that was written before the termination does not end the hold.
func TestEndedBy(t *testing.T) {
	inPlace, job := Hold{Why: Terminated, Generation: "g", Version: 5}, Hold{Why: Terminated, Generation: "g"}
	rec := func(g string, state resource.State) *resource.Record {
		return &resource.Record{Generation: g, State: state}
	}
	for name, c := range map[string]struct {
		hold    Hold
		rec     *resource.Record
		version int32
		ended   bool
	}{
		"before":           {job, rec("g", resource.StateOpen), 9, false},
		"another":          {job, rec("h", resource.StateOpen), 0, true},
		"before, in place": {inPlace, rec("g", resource.StateOpen), 4, false},
		"closed":           {inPlace, rec("g", resource.StateTerminating), 5, false},
		"opened again":     {inPlace, rec("g", resource.StateOpen), 6, true},
		"only paused":      {Hold{Why: Paused}, rec("h", resource.StateOpen), 9, false},
	} {
		if got := c.hold.EndedBy(c.rec, c.version); got != c.ended {
			t.Errorf("%s: ended %v", name, got)
		}
	}
}

func FuzzDecodeReconcile(f *testing.F) {
	f.Add([]byte(`{"op":"o","seen":1,"held":{"/r/a":{"why":"paused","by":"","since":"2026-07-01T12:00:00Z"}}}`))
	f.Add([]byte(`{"changed":{"a":["2026-07-01T12:00:00Z"],"b":null},"all":null}`))
	fuzzBody[Reconcile](f)
}
