// Package schedule computes the ticks of a cron duty: the times at which it runs.
//
// A schedule is one of these:
//
//	0 2 * * *     five fields of crontab(5): minute, hour, day of month, month, day of week
//	@hourly       also @daily, @midnight, @weekly, @monthly, @yearly and @annually, as in crontab(5)
//	@every 10m    the multiples of an interval since 1970-01-01T00:00:00Z, whatever the zone
//
// A day has to fit day of month and day of week. If neither of the two fields has a star, one of them is enough, as in
// crontab(5). Sunday is 0 and 7.
//
// Where a zone changes its clock, a schedule whose minute and hour are both fixed (numbers, lists and ranges) follows
// the clock on the wall: a time that is left out is a tick at the next instant that exists, and a time that comes twice
// is a tick the first time. Several times that are left out together are one tick. If minute or hour has a star or a
// step, the schedule follows the time that passes: it has ticks in both copies of an hour, and none in an hour that is
// left out.
//
// The package reads no clock, and a tick depends on nothing but the schedule and the data of its zone. The machine's
// zone data come first. A copy is linked, because a schedule that apply accepted must have ticks on every member.
//
// It refuses what a member could not keep: seconds as a sixth field, @reboot, a zone within the schedule, a zone that
// is not in the database of IANA, and a schedule that has no tick. Fields are read by a library. It is asked only in
// UTC, because it and its like go wrong where clocks change.
package schedule

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"time"

	cron "github.com/netresearch/go-cron"
)

// maxYears is how far Next looks. No schedule that has ticks pauses longer: 29 February comes at least every 8 years,
// and on a given day of the week at least every 40.
const maxYears = 40

// Schedule is a set of instants, its ticks. All are whole seconds. The zero Schedule has none. Parse makes one.
type Schedule struct {
	canonical string // two spellings of one schedule have the same
	zone      *time.Location

	every int64 // seconds; 0 if there are fields

	fields  *cron.SpecSchedule // in UTC
	elapsed bool               // follows the time that passes, not the clock on the wall
}

// Digest identifies the schedule and its zone: 16 hexadecimal digits. Spaces, upper case and names such as @daily make
// no difference.
func (s Schedule) Digest() string {
	name := ""
	if s.zone != nil {
		name = s.zone.String()
	}
	sum := sha256.Sum256([]byte(s.canonical + "\n" + name))
	return hex.EncodeToString(sum[:8])
}

// Next returns the first tick after an instant, in UTC. It returns false if there is none within the next 40 years.
func (s Schedule) Next(after time.Time) (time.Time, bool) {
	after = after.UTC().Truncate(time.Second)
	switch {
	case s.every > 0:
		n := after.Unix()
		if n > math.MaxInt64-s.every {
			return time.Time{}, false
		}
		return time.Unix(n-mod(n, s.every)+s.every, 0).UTC(), true
	case s.fields == nil:
		return time.Time{}, false
	case s.elapsed:
		return s.nextElapsed(after)
	}
	return s.nextOnWall(after)
}

// Last returns the last tick that is after one instant and not after the other, in UTC. It calls Next about once for
// each bit of the seconds between them, however many ticks there are.
func (s Schedule) Last(after, upTo time.Time) (time.Time, bool) {
	last, ok := s.Next(after)
	if !ok || last.After(upTo) {
		return time.Time{}, false
	}
	for none := upTo; last.Before(none); { // no tick is after none and not after upTo
		middle := last.Add((none.Sub(last) / 2).Truncate(time.Second))
		if tick, ok := s.Next(middle); ok && !tick.After(upTo) {
			last = tick
		} else {
			none = middle
		}
	}
	return last, true
}

// Count returns how many ticks are after one instant and not after the other, but at most limit.
func (s Schedule) Count(after, upTo time.Time, limit int) int {
	n := 0
	for tick, ok := s.Next(after); ok && n < limit && !tick.After(upTo); tick, ok = s.Next(tick) {
		n++
	}
	return n
}

// mod returns the remainder that is not negative.
func mod(a, b int64) int64 { return (a%b + b) % b }
