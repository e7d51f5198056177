package report

import (
	"fmt"
	"time"
)

// Age is how long before now t was: "12s", "5m", "3h", "4d"; a dash if t is not known. Without now it is the time
// itself, so that a text changes only when something happens.
func Age(now, t time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case now.IsZero():
		return stamp(t)
	}
	return short(now.Sub(t))
}

// ago is age in a sentence: "3h ago", "at 2026-07-01T02:00Z".
func ago(now, t time.Time) string {
	if now.IsZero() {
		return "at " + stamp(t)
	}
	return Age(now, t) + " ago"
}

// AgeHeading is the heading of a column of ages.
func AgeHeading(now time.Time, word string) string {
	if now.IsZero() {
		return "since"
	}
	return word
}

// short is a duration for people, in one unit. A negative one, between two clocks, is 0s.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// stamp is a time in UTC, without seconds if they are zero: "2026-07-01T02:00Z".
func stamp(t time.Time) string {
	if t = t.UTC().Truncate(time.Second); t.Second() == 0 {
		return t.Format("2006-01-02T15:04Z")
	}
	return t.Format(time.RFC3339)
}
