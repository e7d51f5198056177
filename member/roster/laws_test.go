package roster_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-version"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"muster/member/roster"
	"muster/resource/group"
)

// TestLaws holds random small groups against all laws.
func TestLaws(t *testing.T) {
	const groups = 4000
	for seed := range uint64(groups) {
		r := rand.New(rand.NewPCG(seed, 0))
		in := randomInput(r)
		broken := brokenLaws(in, r)
		for _, law := range broken {
			t.Errorf("seed %d: %s", seed, law)
		}
		if len(broken) > 0 {
			t.Fatalf("%+v\n%s", in, describe(roster.Assign(in)))
		}
	}
}

// TestBestWhenTwoMembersHaveEverything: most duties have to move, over several members, and some come back home.
func TestBestWhenTwoMembersHaveEverything(t *testing.T) {
	const groups = 1500
	for seed := range uint64(groups) {
		in := crowdedInput(rand.New(rand.NewPCG(seed, 3)))
		got, ok := naive{in}.score(roster.Assign(in).Holders())
		if best := (naive{in}).best(); !ok || got != best {
			t.Fatalf("seed %d: %+v, but the best is %+v: %+v", seed, got, best, in)
		}
	}
}

// TestMemberWithoutVersion: it is older than every other, and has what nobody else can do.
func TestMemberWithoutVersion(t *testing.T) {
	fits := version.MustConstraints(version.NewConstraint(">= 0"))
	in := roster.Input{
		Duties: []roster.Duty{{Name: "a", Newest: true}, {Name: "b", Newest: true}, {Name: "c", Versions: fits}},
		Members: []roster.Member{
			{Seat: 0, Can: []string{"a", "b", "c"}, Ready: true},
			{Seat: 1, Can: []string{"a"}, Ready: true, Version: version.Must(version.NewVersion("1.0"))},
		},
	}
	want := map[string]int32{"a": 1, "b": 0}
	if d := cmp.Diff(want, roster.Assign(in).Holders()); d != "" {
		t.Errorf("holders (-want +got):\n%s", d)
	}
}

// brokenLaws says which laws the roster of in breaks.
func brokenLaws(in roster.Input, r *rand.Rand) (broken []string) {
	got, n := roster.Assign(in), naive{in}
	report := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }

	if s, ok := n.score(got.Holders()); !ok {
		report("somebody has a duty who may not have it")
	} else if best := n.best(); s != best {
		report("%+v, but the best is %+v", s, best)
	}
	for _, p := range got.Posts {
		if law := brokenByPost(n, p); law != "" {
			report("%s: %s", p.Duty, law)
		}
	}
	if d := cmp.Diff(got, roster.Assign(shuffled(in, r)), equalVersions()); d != "" {
		report("another order gives another roster:\n%s", d)
	}
	next := naive{n.after(got)}
	if d := cmp.Diff(memory(got), memory(roster.Assign(next.Input)), equalVersions()); d != "" {
		report("the roster of its own result differs:\n%s", d)
	}
	quiet := time.Hour
	if got.Next > 0 {
		quiet = got.Next - 1
	}
	// A version that is promoted changes nothing by itself, if for instance the duty is pinned.
	if d := cmp.Diff(lasting(got), lasting(roster.Assign(next.later(quiet))), equalVersions()); d != "" {
		report("it changes before its time, %s:\n%s", got.Next, d)
	}
	return broken
}

// brokenByPost checks, without the rules of naive.may, what matters most about one duty.
func brokenByPost(n naive, p roster.Post) string {
	d := n.Duties[slices.IndexFunc(n.Duties, func(d roster.Duty) bool { return d.Name == p.Duty })]
	m, live := n.member(p.Seat)
	switch h, holds := n.holder(d); {
	case p.Seat == roster.Nobody && !n.Paused[d.Name] && !n.starting() &&
		len(n.where(func(m roster.Member) bool { return n.free(m, d) })) > 0:
		return "it is vacant, and somebody could have it"
	case p.Seat != roster.Nobody && (!live || !n.able(m, d) || n.Paused[d.Name]):
		return "its holder cannot do it"
	case d.Leader && !d.Newest && holds && p.Seat != h.Seat && p.Why != roster.Pinned &&
		p.Why != roster.Paused && p.Why != roster.HandedOver:
		return "a leader moved"
	case p.Because() == "":
		return "its reason has no words"
	case p.Seat == roster.Nobody && p.Eligible > 0:
		return "it is vacant, and somebody is eligible"
	}
	return ""
}

// memory is what the next roster follows from.
func memory(r roster.Roster) roster.Input {
	return roster.Input{Holders: r.Holders(), Pins: r.Pins, Newest: r.Newest, HandOver: r.HandOver, Size: r.Size}
}

// lasting is the part of memory that does not change before Roster.Next.
func lasting(r roster.Roster) roster.Input {
	return roster.Input{Holders: r.Holders(), Pins: r.Pins, HandOver: r.HandOver}
}

func equalVersions() cmp.Option {
	return cmp.Comparer(func(a, b *version.Version) bool {
		return a == b || a != nil && b != nil && a.Original() == b.Original()
	})
}

// shuffled returns the same input in another order.
func shuffled(in roster.Input, r *rand.Rand) roster.Input {
	in.Duties, in.Members = slices.Clone(in.Duties), slices.Clone(in.Members)
	r.Shuffle(len(in.Duties), func(i, j int) { in.Duties[i], in.Duties[j] = in.Duties[j], in.Duties[i] })
	r.Shuffle(len(in.Members), func(i, j int) { in.Members[i], in.Members[j] = in.Members[j], in.Members[i] })
	return in
}

// randomInput returns a group of at most 5 members and 6 duties. Half of the groups have only a few of all that there
// is, so that loads decide.
func randomInput(r *rand.Rand) roster.Input {
	plain := r.IntN(2) == 0
	rarely := func(n int) bool { return !plain && r.IntN(n) == 0 }
	in := roster.Input{
		Holders: map[string]int32{}, Pins: map[string]int32{}, Newest: map[string]*version.Version{},
		Paused: map[string]bool{}, HandOver: map[string]int32{}, Failures: map[string]map[int32]int{},
		Backoff: map[string]map[int32]time.Duration{},
	}
	if !plain {
		in.Settle = pick(r, 0, 5*time.Second)
		in.Size = pick(r, 0, 2, 6)
		in.Enough = pick[group.PromoteAfter](r, "1", "2", "50%", "100%").Members
	}
	seats, seat := []int32{99}, int32(0) // 99 has left
	for range r.IntN(6) {
		in.Members = append(in.Members, roster.Member{Seat: seat, Ready: !rarely(6), Age: time.Hour})
		seats = append(seats, seat)
		seat += 1 + r.Int32N(3)
	}
	for d := range r.IntN(7) {
		name := string(rune('a' + d))
		in.Duties = append(in.Duties, randomDuty(r, name, plain))
		in.Failures[name], in.Backoff[name] = map[int32]int{}, map[int32]time.Duration{}
		if r.IntN(4) > 0 {
			in.Holders[name] = pick(r, seats...)
		}
		if rarely(6) {
			in.Pins[name] = pick(r, seats...)
		}
		if rarely(3) {
			in.Newest[name] = randomVersion(r)
		}
		in.Paused[name] = rarely(10)
		if rarely(6) {
			in.HandOver[name] = pick(r, seats...)
		}
		for _, seat := range seats {
			if rarely(5) {
				in.Failures[name][seat] = r.IntN(3)
			}
			if rarely(6) {
				in.Backoff[name][seat] = time.Duration(r.IntN(9)) * time.Second
			}
		}
	}
	young := rarely(3)
	for i := range in.Members {
		m := &in.Members[i]
		m.Version = randomVersion(r)
		if young || rarely(3) {
			m.Age = time.Duration(r.IntN(9)) * time.Second
		}
		for _, d := range in.Duties {
			if r.IntN(3) > 0 {
				m.Can = append(m.Can, d.Name)
			}
		}
	}
	return in
}

// crowdedInput returns at most 5 members and 7 duties. Two members have most of them.
func crowdedInput(r *rand.Rand) roster.Input {
	in := roster.Input{Holders: map[string]int32{}}
	for seat := range 3 + r.Int32N(3) {
		in.Members = append(in.Members, roster.Member{Seat: seat, Ready: true, Version: randomVersion(r)})
	}
	for d := range 4 + r.IntN(4) {
		name := string(rune('a' + d))
		in.Duties = append(in.Duties, roster.Duty{Name: name})
		holder := r.IntN(2)
		if r.IntN(5) > 0 {
			in.Holders[name] = int32(holder)
		}
		for m := range in.Members {
			if m == holder || r.IntN(3) == 0 {
				in.Members[m].Can = append(in.Members[m].Can, name)
			}
		}
	}
	return in
}

func randomDuty(r *rand.Rand, name string, plain bool) roster.Duty {
	d := roster.Duty{Name: name, Leader: r.IntN(4) == 0}
	if !plain {
		d.Newest = r.IntN(2) == 0
		if r.IntN(6) == 0 {
			d.Versions = version.MustConstraints(version.NewConstraint(">= 1.9"))
		}
	}
	return d
}

func randomVersion(r *rand.Rand) *version.Version {
	return version.Must(version.NewVersion(pick(r, "1.0", "1.9", "1.9.0", "2.0", "2.1.0-rc1")))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

var update = flag.Bool("update", false, "rewrite the rosters of the cases")

// TestGolden: a case has the sections "group", which is YAML, and "roster". The first line says why the case exists.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || files == nil {
		t.Fatalf("there are no cases: %v", err)
	}
	reasons := map[roster.Why]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, want, err := readCase(archive)
			if err != nil {
				t.Fatal(err)
			}
			got := roster.Assign(in)
			for _, p := range got.Posts {
				reasons[p.Why] = true
			}
			for _, law := range brokenLaws(in, rand.New(rand.NewPCG(1, 1))) {
				t.Error(law)
			}
			if text := describe(got); *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "roster", Data: []byte(text)})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if d := cmp.Diff(want, text); d != "" {
				t.Errorf("roster (-want +got):\n%s", d)
			}
		})
	}
	for _, why := range []roster.Why{
		roster.Starts, roster.Keeps, roster.Leads, roster.Waits, roster.Pinned, roster.Newer, roster.HandedOver,
		roster.Evens, roster.Fills, roster.Only, roster.Paused, roster.BackedOff, roster.Unfit,
	} {
		if !reasons[why] {
			t.Errorf("no case has a duty whose reason is %q", why)
		}
	}
}

// readCase returns the input and the expected roster.
func readCase(a *txtar.Archive) (in roster.Input, want string, err error) {
	const shortest = 20
	if why, _, _ := strings.Cut(string(a.Comment), "\n"); len(why) < shortest {
		return in, "", fmt.Errorf("the first line does not say why the case exists: %q", why)
	}
	switch {
	case len(a.Files) > 0 && a.Files[0].Name != "group",
		len(a.Files) > 1 && a.Files[1].Name != "roster", len(a.Files) == 0, len(a.Files) > 2:
		return in, "", errors.New("a case has the sections group and roster, in this order")
	case len(a.Files) == 2:
		want = string(a.Files[1].Data)
	}
	var g facts
	dec := yaml.NewDecoder(bytes.NewReader(a.Files[0].Data))
	dec.KnownFields(true)
	if err := dec.Decode(&g); err != nil && !errors.Is(err, io.EOF) {
		return in, "", err
	}
	in, err = g.input()
	return in, want, err
}

// facts is the section "group": members by seat and duties by name. Only what is not as usual stands there.
type facts struct {
	Settle       time.Duration
	Size         int
	PromoteAfter group.PromoteAfter `yaml:"promote_after"`
	Members      map[int32]memberFacts
	Duties       map[string]dutyFacts
}

type memberFacts struct {
	Version  string        // default: 1.0
	Age      time.Duration // default: 1h
	Can      []string      // default: all duties
	NotReady bool          `yaml:"not_ready"`
}

type dutyFacts struct {
	Leader, Newest bool
	Versions       string
	Had            *int32 // the seat that has it
	Pin            *int32
	Preferred      string // the version that was preferred last time
	Paused         bool
	HandOver       *int32 `yaml:"hand_over"`
	Failures       map[int32]int
	Backoff        map[int32]time.Duration
}

func (f facts) input() (roster.Input, error) {
	in := roster.Input{
		Settle: f.Settle, Size: f.Size, Enough: f.PromoteAfter.Members,
		Holders: map[string]int32{}, Pins: map[string]int32{}, Newest: map[string]*version.Version{},
		Paused: map[string]bool{}, HandOver: map[string]int32{}, Failures: map[string]map[int32]int{},
		Backoff: map[string]map[int32]time.Duration{},
	}
	all := slices.Sorted(maps.Keys(f.Duties))
	for seat, facts := range f.Members {
		m := roster.Member{Seat: seat, Can: facts.Can, Ready: !facts.NotReady, Age: time.Hour}
		if facts.Can == nil {
			m.Can = all
		}
		if facts.Age > 0 {
			m.Age = facts.Age
		}
		var err error
		if m.Version, err = parsed(facts.Version, "1.0"); err != nil {
			return in, err
		}
		in.Members = append(in.Members, m)
	}
	for name, facts := range f.Duties {
		if err := facts.add(name, &in); err != nil {
			return in, err
		}
	}
	return in, nil
}

func (f dutyFacts) add(name string, in *roster.Input) error {
	d := roster.Duty{Name: name, Newest: f.Newest, Leader: f.Leader}
	var err error
	if f.Versions != "" {
		if d.Versions, err = version.NewConstraint(f.Versions); err != nil {
			return err
		}
	}
	in.Duties = append(in.Duties, d)
	if f.Had != nil {
		in.Holders[name] = *f.Had
	}
	if f.Pin != nil {
		in.Pins[name] = *f.Pin
	}
	if f.Preferred != "" {
		if in.Newest[name], err = parsed(f.Preferred, ""); err != nil {
			return err
		}
	}
	if f.HandOver != nil {
		in.HandOver[name] = *f.HandOver
	}
	in.Paused[name], in.Failures[name], in.Backoff[name] = f.Paused, f.Failures, f.Backoff
	return nil
}

func parsed(text, usual string) (*version.Version, error) {
	if text == "" {
		text = usual
	}
	return version.NewVersion(text)
}

// describe prints a roster: each duty, its seat, the last one if that is another, and the reason.
func describe(r roster.Roster) string {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, p := range r.Posts {
		last, wait := "", ""
		if p.Last != p.Seat {
			last = fmt.Sprintf(" (had %s)", seatName(p.Last))
		}
		if p.Wait > 0 {
			wait = fmt.Sprintf("; wait %s", p.Wait)
		}
		fmt.Fprintf(table, "%s\t%s%s\t%s%s\n", p.Duty, seatName(p.Seat), last, p.Because(), wait)
	}
	table.Flush()
	for _, duty := range slices.Sorted(maps.Keys(r.Pins)) {
		fmt.Fprintf(&text, "pin: %s %d\n", duty, r.Pins[duty])
	}
	for _, duty := range slices.Sorted(maps.Keys(r.HandOver)) {
		fmt.Fprintf(&text, "hand over: %s %d\n", duty, r.HandOver[duty])
	}
	for _, duty := range slices.Sorted(maps.Keys(r.Newest)) {
		fmt.Fprintf(&text, "newest: %s %s\n", duty, r.Newest[duty])
	}
	if r.Next > 0 {
		fmt.Fprintf(&text, "next: %s\n", r.Next)
	}
	return text.String()
}

func seatName(seat int32) string {
	if seat == roster.Nobody {
		return "nobody"
	}
	return fmt.Sprint(seat)
}
