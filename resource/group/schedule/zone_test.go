package schedule

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
