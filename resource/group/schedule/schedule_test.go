package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// mustParse returns a schedule that is known to be right.
func mustParse(t testing.TB, text, timezone string) Schedule {
	t.Helper()
	s, err := Parse(text, timezone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at reads a time such as 2026-03-29T01:00:00Z or 2026-03-29T03:00:00+02:00.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

// ticks lists the ticks that are after one instant and not after the other, as the zone of the schedule shows them.
func ticks(s Schedule, after, upTo time.Time) []string {
	zone := s.zone
	if zone == nil {
		zone = time.UTC
	}
	var all []string
	for tick, ok := s.Next(after); ok && !tick.After(upTo); tick, ok = s.Next(tick) {
		all = append(all, tick.In(zone).Format("Mon 02 15:04:05 -0700"))
	}
	return all
}

func TestSchedules(t *testing.T) {
	const start = "2026-11-21T23:30:00Z" // a Saturday
	for _, c := range []struct {
		text string
		want []string // the first ticks
	}{
		{"0 2 * * *", []string{"2026-11-22T02:00:00Z", "2026-11-23T02:00:00Z"}},
		{"  0   2 * * *\t", []string{"2026-11-22T02:00:00Z"}},
		{"*/20 * * * *", []string{"2026-11-21T23:40:00Z", "2026-11-22T00:00:00Z"}},
		{"5,35 8-9 * * *", []string{"2026-11-22T08:05:00Z", "2026-11-22T08:35:00Z", "2026-11-22T09:05:00Z"}},
		{"0 22-1 * * *", []string{"2026-11-22T00:00:00Z", "2026-11-22T01:00:00Z", "2026-11-22T22:00:00Z"}},
		{"0 0 * * sun", []string{"2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"}},
		{"0 0 * * 7", []string{"2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"}},
		{"0 0 * * FRI-MON", []string{"2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-27T00:00:00Z"}},
		{"0 0 * * 1-7/3", []string{"2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-26T00:00:00Z"}},
		{"0 0 * * sun-sat/3", []string{"2026-11-22T00:00:00Z", "2026-11-25T00:00:00Z", "2026-11-28T00:00:00Z"}},
		// Both days are named, so one is enough.
		{"0 0 24 * mon", []string{"2026-11-23T00:00:00Z", "2026-11-24T00:00:00Z", "2026-11-30T00:00:00Z"}},
		// A star, even with a step, names no day.
		{"0 0 */2 * mon", []string{"2026-11-23T00:00:00Z", "2026-12-07T00:00:00Z"}},
		{"0 0 13 * */5", []string{"2026-12-13T00:00:00Z", "2027-06-13T00:00:00Z", "2027-08-13T00:00:00Z"}},
		{"0 0 29 2 *", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"0 0 29 2 */7", []string{"2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z", "2088-02-29T00:00:00Z"}},
		{"0 0 31 4,dec *", []string{"2026-12-31T00:00:00Z", "2027-12-31T00:00:00Z"}},
		{"@hourly", []string{"2026-11-22T00:00:00Z", "2026-11-22T01:00:00Z"}},
		{"@daily", []string{"2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"}},
		{"@Midnight", []string{"2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"}},
		{"@weekly", []string{"2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"}},
		{"@monthly", []string{"2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"}},
		{"@yearly", []string{"2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"}},
		{"@annually", []string{"2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"}},
		{"@every 1s", []string{"2026-11-21T23:30:01Z", "2026-11-21T23:30:02Z"}},
		{"@every 10m", []string{"2026-11-21T23:40:00Z", "2026-11-21T23:50:00Z"}},
		{"@every 1H30M", []string{"2026-11-22T00:00:00Z", "2026-11-22T01:30:00Z"}},
		{"@every 7m", []string{"2026-11-21T23:31:00Z", "2026-11-21T23:38:00Z"}},
	} {
		s := mustParse(t, c.text, "")
		var got []string
		for when := at(t, start); len(got) < len(c.want); {
			next, ok := s.Next(when)
			if !ok {
				break
			}
			got, when = append(got, next.Format(time.RFC3339)), next
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: ticks (-want +got):\n%s", c.text, d)
		}
	}
}

// TestEveryCountsFrom1970: an interval does not depend on when somebody began, nor on a zone.
func TestEveryCountsFrom1970(t *testing.T) {
	s := mustParse(t, "@every 100h", "Europe/Berlin")
	for _, c := range []struct{ after, want string }{
		{"1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"}, {"1970-01-01T00:00:00Z", "1970-01-05T04:00:00Z"},
		{"1969-12-20T00:00:00Z", "1969-12-23T16:00:00Z"}, {"1970-01-05T04:00:00.5Z", "1970-01-09T08:00:00Z"},
	} {
		if got, ok := s.Next(at(t, c.after)); !ok || !got.Equal(at(t, c.want)) {
			t.Errorf("after %s: %s, want %s", c.after, got, c.want)
		}
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	for _, c := range []struct{ text, zone, want string }{
		{"", "", "it is empty: write five fields"},
		{"0 2 * *", "", `"0 2 * *" has 4 of the five fields: write five fields`},
		{"0 0 2 * * *", "", `"0 0 2 * * *" has 6 fields: write five, without seconds and year: minute, hour, ` +
			`day of month, month, day of ` +
			`week; below a minute write "@every 30s"`},
		{"0 0 2 * * * 2027", "", `"0 0 2 * * * 2027" has 7 fields: write five, without seconds and year`},
		{"@reboot", "", "@reboot is not a time, and what runs from the start is a leader: write five fields"},
		{"@fortnightly", "", "@fortnightly is not known: write five fields"},
		{"@daily 10m", "", "@daily takes nothing after it: write five fields"},
		{"@every", "", `@every takes one interval: write it without spaces, such as "@every 1h30m"`},
		{"@every 1h 30m", "", "@every takes one interval"},
		{"@every 1d", "", `"1d" is not an interval: write a number and a unit (h, m, s), such as "@every 10m"; a day is 24h`},
		{"@every 500ms", "", `an interval of 500ms is too short: write "@every 1s" or more`},
		{"@every -1h", "", "an interval of -1h is too short"},
		{"@every 90500ms", "", `an interval of 90500ms is not whole seconds: write "@every 1m30s" or more`},
		{"TZ=Asia/Tokyo 0 2 * * *", "", `the zone "Asia/Tokyo" stands in the schedule: write it as timezone`},
		{"CRON_TZ=UTC @daily", "", `the zone "UTC" stands in the schedule: write it as timezone`},
		{"TZ=", "", `the zone "" stands in the schedule`},
		{"60 * * * *", "", `minute "60": write 0-59, a list (1,15), a range (1-5), a star or a step (*/2)`},
		{"*/90 * * * *", "", `minute "*/90": write 0-59, a list (1,15), a range (1-5), a star or a step (*/2); longer is ` +
			`"@every 90m"`},
		{"*/0 * * * *", "", `minute "*/0": write 0-59`},
		{"1,,2 * * * *", "", `minute "1,,2": write 0-59`},
		{"+1 * * * *", "", `minute "+1": write 0-59`},
		{"*-5 * * * *", "", `minute "*-5": write 0-59`},
		{"5-1-2 * * * *", "", `minute "5-1-2": write 0-59`},
		{"0 24 * * *", "", `hour "24": write 0-23`},
		{"0 0 0 * *", "", `day of month "0": write 1-31`},
		{"0 0 L * *", "", `day of month "l": write 1-31`},
		{"0 0 1 13 *", "", `month "13": write 1-12 or jan-dec`},
		{"0 0 1 january *", "", `month "january": write 1-12 or jan-dec`},
		{"0 0 * * 8", "", `day of week "8": write 0-7 or sun-sat`},
		{"0 0 * * fri#3", "", `day of week "fri#3": write 0-7 or sun-sat`},
		{"H H * * *", "", `minute "h": write 0-59`},
		{"0 0 * * fri-mon/2", "", `day of week "fri-mon/2": a range with a step ends at Saturday, or Sunday as 7: write ` +
			`the days as a list, such as fri,sun`},
		{"0 0 * * 7-2/2", "", `day of week "7-2/2": a range with a step ends at Saturday`},
		{"0 0 30 2 *", "", `"0 0 30 2 *" never comes: no month that it names has such a day`},
		{"0 0 31 2,4,6,9,11 *", "", "never comes"},
		{strings.Repeat("0,", 200) + "0 * * * *", "", "409 bytes: a schedule has at most 256; write ranges and steps"},
		{"0 2 * * *", "Europe/Berln", `timezone "Europe/Berln" is not known: write a name of the IANA time zone ` +
			`database, such as "Europe/Berlin" or "UTC"`},
		{"0 2 * * *", "+02:00", `timezone "+02:00" is not known`},
		{"0 2 * * *", "../../etc/passwd", `timezone "../../etc/passwd" is not known`},
		{"0 2 * * *", "Local", `timezone "Local" is not the same on every machine`},
		{"0 2 * * *", "right/UTC", `timezone "right/UTC" is not the same on every machine`},
	} {
		s, err := Parse(c.text, c.zone)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
		if tick, ok := s.Next(time.Time{}); ok {
			t.Errorf("%q is refused, and has a tick at %s", c.text, tick)
		}
	}
}

func TestDigest(t *testing.T) {
	daily := mustParse(t, "0 0 * * *", "").Digest()
	for _, same := range [][2]string{{"@daily", ""}, {" 0 0  * * * ", "UTC"}, {"@MIDNIGHT", "UTC"}} {
		if got := mustParse(t, same[0], same[1]).Digest(); got != daily || len(got) != 16 {
			t.Errorf("%q: %s, want %s", same, got, daily)
		}
	}
	if a, b := mustParse(t, "@every 60m", "Asia/Tokyo"), mustParse(t, "@every 1h", ""); a.Digest() != b.Digest() {
		t.Error("the interval, or the zone, which an interval does not have, makes a difference")
	}
	seen := map[string]string{daily: "0 0 * * * UTC"}
	for _, other := range [][2]string{
		{"@daily", "Asia/Tokyo"}, {"@daily", "Etc/UTC"}, {"@hourly", ""}, {"@every 24h", ""},
	} {
		digest := mustParse(t, other[0], other[1]).Digest()
		if same, ok := seen[digest]; ok {
			t.Errorf("%q has the digest of %s", other, same)
		}
		seen[digest] = other[0]
	}
	// A cursor in ZooKeeper keeps the digest: another one would forget what is due.
	if want := "4c442cc94e036b16"; daily != want {
		t.Errorf("the digest of @daily is %s, it was %s", daily, want)
	}
}

func TestLastAndCount(t *testing.T) {
	a, b := at(t, "2025-01-01T00:00:00Z"), at(t, "2026-03-29T12:00:30Z")
	for text, want := range map[string]struct {
		last  string
		count int
	}{
		"@every 1s": {"2026-03-29T12:00:30Z", 1000}, "* * * * *": {"2026-03-29T12:00:00Z", 1000},
		"0 2 * * *": {"2026-03-29T01:00:00Z", 453}, "0 0 29 2 *": {"", 0}, "@yearly": {"2025-12-31T23:00:00Z", 1},
	} {
		s := mustParse(t, text, "Europe/Berlin")
		last, ok := s.Last(a, b)
		if ok != (want.last != "") || ok && !last.Equal(at(t, want.last)) {
			t.Errorf("%s: last is %s, want %s", text, last, want.last)
		}
		if n := s.Count(a, b, 1000); n != want.count {
			t.Errorf("%s: %d ticks, want %d", text, n, want.count)
		}
	}
}

// TestLeapYearByRule: a zone of which only the rule is known, as in the zone data that Go brings, for machines without
// their own. The last day of a leap year is as any other.
func TestLeapYearByRule(t *testing.T) {
	header := "TZif2" + strings.Repeat("\x00", 15+4*4) + "\x00\x00\x00\x01\x00\x00\x00\x04"
	kind := "\x00\x00\x0e\x10\x00\x00CET\x00"
	zone, err := time.LoadLocationFromTZData("rule", []byte(header+kind+header+kind+"\nCET-1CEST,M3.5.0,M10.5.0/3\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := mustParse(t, "0 2 * * *", "Europe/Berlin")
	s.zone = zone
	next := at(t, "2024-12-29T12:00:00Z")
	for _, want := range []string{
		"2024-12-30T01:00:00Z", "2024-12-31T01:00:00Z", "2025-01-01T01:00:00Z", "2025-01-02T01:00:00Z",
	} {
		var ok bool
		if next, ok = s.Next(next); !ok || !next.Equal(at(t, want)) {
			t.Errorf("next is %s, want %s", next, want)
		}
	}
	if n := s.Count(at(t, "2024-01-01T00:00:00Z"), at(t, "2028-12-31T23:00:00Z"), 3000); n != 366+3*365+366 {
		t.Errorf("%d days in five years", n)
	}
}

// TestNoEnd: even at the end of the calendar an answer comes.
func TestNoEnd(t *testing.T) {
	for _, text := range []string{"@every 1s", "0 0 29 2 *", "*/5 * 29 2 *", "@daily"} {
		s := mustParse(t, text, "Europe/Berlin")
		for _, after := range []time.Time{{}, at(t, "9999-12-31T23:59:59Z"), time.Unix(1<<55, 0)} {
			if next, ok := s.Next(after); ok && !next.After(after) {
				t.Errorf("%s: after %s comes %s", text, after, next)
			}
		}
	}
}

// TestClockChanges lists all ticks of a schedule around one change of a clock.
func TestClockChanges(t *testing.T) {
	for _, c := range []struct {
		why, text, zone, after, upTo string
		want                         []string
	}{
		{
			"Berlin leaves out 02:00 to 03:00: a fixed time in it is a tick at 03:00",
			"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"Sat 28 02:30:00 +0100", "Sun 29 03:00:00 +0200", "Mon 30 02:30:00 +0200"},
		},
		{
			"several fixed times that are left out are one tick, also with the one that is there",
			"0,20,40 2-3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z",
			[]string{"Sun 29 03:00:00 +0200", "Sun 29 03:20:00 +0200", "Sun 29 03:40:00 +0200"},
		},
		{
			"Berlin repeats 02:00 to 03:00: a fixed time is a tick the first time",
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z",
			[]string{"Sun 25 02:30:00 +0200", "Mon 26 02:30:00 +0100"},
		},
		{
			"whole hours, which are a star, pass as the time does",
			"0 * * * *", "Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25T02:30:00Z",
			[]string{
				"Sun 25 01:00:00 +0200", "Sun 25 02:00:00 +0200", "Sun 25 02:00:00 +0100", "Sun 25 03:00:00 +0100",
			},
		},
		{
			"and in spring", "@hourly", "Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29T02:30:00Z",
			[]string{"Sun 29 01:00:00 +0100", "Sun 29 03:00:00 +0200", "Sun 29 04:00:00 +0200"},
		},
		{
			"a step of hours: both copies", "0 */2 * * *", "Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25T04:30:00Z",
			[]string{"Sun 25 02:00:00 +0200", "Sun 25 02:00:00 +0100", "Sun 25 04:00:00 +0100"},
		},
		{
			"a step of hours: none that is left out",
			"0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", "2026-03-29T04:30:00Z",
			[]string{"Sun 29 00:00:00 +0100", "Sun 29 04:00:00 +0200", "Sun 29 06:00:00 +0200"},
		},
		{
			"a step of minutes in a fixed hour that is left out",
			"*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"Mon 30 02:00:00 +0200", "Mon 30 02:30:00 +0200"},
		},
		{
			"a step of minutes in a fixed hour that comes twice",
			"*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z",
			[]string{
				"Sun 25 02:00:00 +0200", "Sun 25 02:30:00 +0200", "Sun 25 02:00:00 +0100", "Sun 25 02:30:00 +0100",
			},
		},
		{
			"New York, 8 March", "15 2 * * 0", "America/New_York", "2026-03-08T00:00:00Z", "2026-03-16T00:00:00Z",
			[]string{"Sun 08 03:00:00 -0400", "Sun 15 02:15:00 -0400"},
		},
		{
			"New York, 1 November", "15,45 1 * * *", "America/New_York", "2026-11-01T00:00:00Z", "2026-11-02T08:00:00Z",
			[]string{
				"Sun 01 01:15:00 -0400", "Sun 01 01:45:00 -0400", "Mon 02 01:15:00 -0500", "Mon 02 01:45:00 -0500",
			},
		},
		{
			"Lord Howe leaves out 02:00 to 02:30",
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-05T00:00:00Z",
			[]string{"Sun 04 02:30:00 +1100", "Mon 05 02:15:00 +1100"},
		},
		{
			"Lord Howe repeats 01:30 to 02:00",
			"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-05T20:00:00Z",
			[]string{"Sun 05 01:45:00 +1100", "Mon 06 01:45:00 +1030"},
		},
		{
			"Lord Howe, as the time passes",
			"*/15 * * * *", "Australia/Lord_Howe", "2026-04-04T14:29:00Z", "2026-04-04T15:30:00Z",
			[]string{
				"Sun 05 01:30:00 +1100", "Sun 05 01:45:00 +1100", "Sun 05 01:30:00 +1030", "Sun 05 01:45:00 +1030",
				"Sun 05 02:00:00 +1030",
			},
		},
		{
			"Sao Paulo leaves out midnight", "@daily", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-05T12:00:00Z",
			[]string{"Sun 04 01:00:00 -0200", "Mon 05 00:00:00 -0200"},
		},
		{
			"Sao Paulo leaves out the midnight that begins Sunday",
			"30 0 * * sun", "America/Sao_Paulo", "2018-11-03T12:00:00Z", "2018-11-12T12:00:00Z",
			[]string{"Sun 04 01:00:00 -0200", "Sun 11 00:30:00 -0200"},
		},
		{
			"Sao Paulo repeats 23:00 to 24:00: Saturday is longer",
			"30 23,0 * * *", "America/Sao_Paulo", "2018-02-17T12:00:00Z", "2018-02-18T12:00:00Z",
			[]string{"Sat 17 23:30:00 -0200", "Sun 18 00:30:00 -0300"},
		},
		{
			"Apia skipped 30 December 2011: its fixed times are one tick at the end of the day that was left out",
			"0 9,15 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", "2011-12-31T12:00:00Z",
			[]string{
				"Thu 29 09:00:00 -1000", "Thu 29 15:00:00 -1000", "Sat 31 00:00:00 +1400", "Sat 31 09:00:00 +1400",
				"Sat 31 15:00:00 +1400",
			},
		},
		{
			"Apia, on the day itself", "0 9 30 12 *", "Pacific/Apia", "2011-01-01T00:00:00Z", "2012-12-31T00:00:00Z",
			[]string{"Sat 31 00:00:00 +1400", "Sun 30 09:00:00 +1400"},
		},
		{
			"Apia, as the time passes", "0 */12 * * *", "Pacific/Apia", "2011-12-29T21:00:00Z", "2011-12-31T00:00:00Z",
			[]string{"Thu 29 12:00:00 -1000", "Sat 31 00:00:00 +1400", "Sat 31 12:00:00 +1400"},
		},
		{
			"Kwajalein lived 30 September 1969 almost twice: once is enough",
			"0 9 * * *", "Pacific/Kwajalein", "1969-09-29T00:00:00Z", "1969-10-02T00:00:00Z",
			[]string{"Tue 30 09:00:00 +1100", "Wed 01 09:00:00 -1200"},
		},
		{
			"Dublin: its winter time is the exception, and makes no difference",
			"30 1 * * *", "Europe/Dublin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z",
			[]string{"Sun 25 01:30:00 +0100", "Mon 26 01:30:00 +0000"},
		},
		{
			"an interval knows no clock on the wall",
			"@every 20m", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z",
			[]string{"Sun 29 00:40:00 +0000", "Sun 29 01:00:00 +0000", "Sun 29 01:20:00 +0000"},
		},
	} {
		got := ticks(mustParse(t, c.text, c.zone), at(t, c.after), at(t, c.upTo))
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s in %s (-want +got):\n%s", c.why, c.text, c.zone, d)
		}
	}
}
