package schedule

import (
	"time"
	_ "time/tzdata" // for machines without zone data; about 400 KiB
)

// A wall time is what a clock on the wall of the zone shows, written as a time.Time in UTC. In one period of a zone,
// between two changes of its clock, wall time is an instant plus the offset.

// spread is more than the offset of any zone, and more than any change of a clock.
const spread = 48 * time.Hour

// period is a time in which a zone does not change its clock.
type period struct {
	start, end time.Time // zero: without end; the end is not part of it
	offset     time.Duration
}

func (s Schedule) periodAt(t time.Time) period {
	t = t.In(s.zone)
	_, offset := t.Zone()
	p := period{offset: time.Duration(offset) * time.Second}
	p.start, p.end = t.ZoneBounds()
	if !p.end.IsZero() && !p.end.After(t) { // where a zone has a rule for all years, a leap year ends a day early there
		p.end = t.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	return p
}

// holds reports whether an instant that is not before the period is in it.
func (p period) holds(t time.Time) bool { return p.end.IsZero() || t.Before(p.end) }

func (p period) wall(t time.Time) time.Time { return t.UTC().Add(p.offset) }

// nextElapsed returns the first instant after another whose wall time fits the fields.
func (s Schedule) nextElapsed(after time.Time) (time.Time, bool) {
	p := s.periodAt(after)
	for far := after.AddDate(maxYears, 0, 0); !after.After(far); {
		wall := s.fields.Next(p.wall(after))
		if wall.IsZero() {
			return time.Time{}, false
		}
		if tick := wall.Add(-p.offset); p.holds(tick) {
			return tick, true
		}
		// Fields are whole minutes, so one second earlier is the last instant whose Next is in the next period.
		after = p.end.Add(-time.Second)
		p = s.periodAt(p.end)
	}
	return time.Time{}, false
}

// nextOnWall returns the first instant after another at which the wall clock reaches, for the first time, a time that
// fits the fields or lies after one that does.
func (s Schedule) nextOnWall(after time.Time) (time.Time, bool) {
	wall := s.fields.Next(s.latestWall(after))
	if wall.IsZero() {
		return time.Time{}, false
	}
	return s.reaches(wall), true
}

// latestWall returns the latest wall time until an instant. It is later than the wall time of that instant while a
// clock that was turned back repeats an hour.
func (s Schedule) latestWall(t time.Time) time.Time {
	p := s.periodAt(t)
	latest := p.wall(t)
	for first := t.Add(-spread); !p.start.IsZero() && p.start.After(first); {
		end := p.start.Add(-time.Second)
		p = s.periodAt(end)
		if wall := p.wall(end); wall.After(latest) {
			latest = wall
		}
	}
	return latest
}

// reaches returns the first instant whose wall time is wall or later.
func (s Schedule) reaches(wall time.Time) time.Time {
	from := wall.Add(-spread)
	for {
		p := s.periodAt(from)
		t := wall.Add(-p.offset)
		if t.Before(from) { // it was left out
			t = from
		}
		if p.holds(t) {
			return t
		}
		from = p.end
	}
}
