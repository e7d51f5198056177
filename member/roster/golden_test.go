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
