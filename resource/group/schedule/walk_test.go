package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// plain is a schedule of five fields as this test understands it, beside its text.
type plain struct {
	text  [5]string
	fits  [5]map[int]bool
	names [5][]string
}

// randomPlain writes fields of each form and lists the values that they mean.
func randomPlain(r *rand.Rand) plain {
	var p plain
	p.names[3] = strings.Fields("none jan feb mar apr may jun jul aug sep oct nov dec")
	p.names[day] = strings.Fields("sun mon tue wed thu fri sat")
	for i, bound := range [][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		p.fits[i] = map[int]bool{}
		// Months and days are mostly stars, because a week has to have ticks.
		if i >= 2 && r.IntN(3) > 0 {
			p.add(i, "*", bound[0], bound[1], 1)
			continue
		}
		for n := 1 + r.IntN(3)*r.IntN(2); n > 0; n-- {
			p.addRandom(r, i, bound[0], bound[1])
		}
	}
	return p
}

// addRandom adds an element to the list of a field.
func (p *plain) addRandom(r *rand.Rand, i, low, high int) {
	from := low + r.IntN(high-low)
	to := from + 1 + r.IntN(high-from)
	if i == 1 { // clocks change at night
		from, to = r.IntN(3), 3
	}
	step := 1 + r.IntN(to-from)
	switch r.IntN(5) {
	case 0:
		p.add(i, "*", low, high, 1)
	case 1:
		p.add(i, fmt.Sprintf("*/%d", 2+step%3), low, high, 2+step%3)
	case 2:
		p.add(i, p.value(r, i, from), from, from, 1)
	case 3:
		p.add(i, p.value(r, i, from)+"-"+p.value(r, i, to), from, to, 1)
	case 4:
		p.add(i, fmt.Sprintf("%d-%d/%d", from, to, step), from, to, step)
	}
}

// value writes a number, or its name if it has one.
func (p *plain) value(r *rand.Rand, i, n int) string {
	if p.names[i] != nil && r.IntN(2) == 0 {
		return p.names[i][n]
	}
	return fmt.Sprint(n)
}

func (p *plain) add(i int, text string, from, to, step int) {
	p.text[i] = strings.TrimPrefix(p.text[i]+","+text, ",")
	for v := from; v <= to; v += step {
		p.fits[i][v] = true
	}
}

// holds reports whether a wall time fits the fields.
func (p *plain) holds(wall time.Time) bool {
	dom, dow := p.fits[2][wall.Day()], p.fits[day][int(wall.Weekday())]
	either := !strings.Contains(p.text[2]+p.text[day], "*")
	return p.fits[0][wall.Minute()] && p.fits[1][wall.Hour()] && p.fits[3][int(wall.Month())] &&
		(dom && dow || either && (dom || dow))
}

// walk goes through the time minute by minute and writes down the ticks.
func (p *plain) walk(zone *time.Location, after, upTo time.Time) []time.Time {
	fixed := !strings.ContainsAny(p.text[0]+p.text[1], "*/")
	var all []time.Time
	latest := time.Time{} // the latest wall time that was seen
	for t := after.Add(-3 * 24 * time.Hour); !t.After(upTo); t = t.Add(time.Minute) {
		_, offset := t.In(zone).Zone()
		wall := t.UTC().Add(time.Duration(offset) * time.Second)
		due := p.holds(wall)
		if fixed && !latest.IsZero() {
			due = false
			for w := latest.Add(time.Minute); !w.After(wall); w = w.Add(time.Minute) {
				due = due || p.holds(w)
			}
		}
		if due && t.After(after) {
			all = append(all, t)
		}
		if wall.After(latest) {
			latest = wall
		}
	}
	return all
}

// TestTicksAgainstAWalk compares random schedules with the walk, in the days around a change of a clock.
func TestTicksAgainstAWalk(t *testing.T) {
	zones := strings.Fields("Europe/Berlin America/New_York Australia/Lord_Howe America/Sao_Paulo Pacific/Apia " +
		"Europe/Dublin Antarctica/Troll Africa/Casablanca Asia/Tehran America/Caracas Asia/Kathmandu Asia/Pyongyang " +
		"America/Havana Asia/Gaza Pacific/Chatham UTC")
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	found := 0
	for n := range 150 {
		name := zones[n%len(zones)]
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Date(1976, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(r.IntN(60*365*24)) * time.Hour)
		if _, change := from.In(zone).ZoneBounds(); !change.IsZero() {
			from = change.UTC().Add(-time.Duration(r.IntN(72*60)) * time.Minute).Truncate(time.Minute)
		}
		upTo := from.Add(5 * 24 * time.Hour)
		p := randomPlain(r)
		text := strings.Join(p.text[:], " ")
		s, err := Parse(text, name)
		if err != nil {
			if !strings.Contains(err.Error(), "never comes") {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		want := p.walk(zone, from, upTo)
		var got []time.Time
		for tick, ok := s.Next(from); ok && !tick.After(upTo); tick, ok = s.Next(tick) {
			got = append(got, tick)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s in %s after %s (-walked +got):\n%s", text, name, from, d)
		}
		found += len(got)
		checkLaws(t, s, from, upTo, r)
	}
	if found < 1000 {
		t.Errorf("only %d ticks: the schedules are too rare", found)
	}
}

// checkLaws checks what holds for every schedule from one instant on: Next is later than its argument, and no instant
// before it gives another; Last finds the last.
func checkLaws(t *testing.T, s Schedule, from, upTo time.Time, r *rand.Rand) {
	t.Helper()
	var last time.Time
	for when := from; ; {
		next, ok := s.Next(when)
		if !ok {
			break
		}
		if !next.After(when) {
			t.Fatalf("%s in %s: after %s comes %s", s.canonical, s.zone, when, next)
		}
		for range 3 {
			between := when.Add(time.Duration(r.Int64N(int64(next.Sub(when)))))
			if again, ok := s.Next(between); !ok || !again.Equal(next) {
				t.Fatalf("%s in %s: after %s comes %s, after %s comes %s",
					s.canonical, s.zone, when, next, between, again)
			}
		}
		if next.After(upTo) {
			break
		}
		when, last = next, next
	}
	if got, ok := s.Last(from, upTo); ok == last.IsZero() || ok && !got.Equal(last) {
		t.Errorf("%s in %s: the last after %s until %s is %s, not %s", s.canonical, s.zone, from, upTo, last, got)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"0 2 * * *", "*/7 1-5/2 1,31 feb-apr mon", "@every 90m", "@daily", "0 0 30 2 *", "0 0 29 2 */7", "? * L * fri#2",
		"59 23 31 12 7", "TZ= 1 1 1 1 1", ", , , , ,", "1-1/1 0 * * *", "* * * * fri-mon/2", "@every 2562047h",
		"\xff * * * *",
	} {
		f.Add(text, "Australia/Lord_Howe", int64(1e9))
		f.Add(text, "", int64(1774750000))
	}
	f.Fuzz(func(t *testing.T, text, zone string, unix int64) {
		s, err := Parse(text, zone)
		if err != nil {
			if s != (Schedule{}) {
				t.Errorf("%q is refused and is %+v", text, s)
			}
			return
		}
		from := time.Unix(unix%(1<<36), 0)
		checkLaws(t, s, from, from.Add(time.Minute), rand.New(rand.NewPCG(0, uint64(unix))))
	})
}
