package schedule

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"
)

// maxText is the longest schedule in bytes. Each minute of an hour as a list takes 170.
const maxText = 256

const howToWrite = `write five fields (minute, hour, day of month, month, day of week) such as "0 2 * * *", or ` +
	`@hourly, @daily, @weekly, @monthly, @yearly, or "@every 10m"`

// Parse reads a schedule. The time zone is a name of the IANA database, such as Europe/Berlin; empty is UTC. An error
// says what to write instead. It does not name the field of the configuration.
func Parse(text, timezone string) (Schedule, error) {
	zone, err := parseZone(timezone)
	if err != nil {
		return Schedule{}, err
	}
	if len(text) > maxText {
		return Schedule{}, fmt.Errorf("%d bytes: a schedule has at most %d; write ranges and steps", len(text), maxText)
	}
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return Schedule{}, fmt.Errorf("it is empty: %s", howToWrite)
	}
	if name, _, ok := strings.Cut(words[0], "="); ok && (name == "tz" || name == "cron_tz") {
		_, zone, _ := strings.Cut(strings.Fields(text)[0], "=")
		return Schedule{}, fmt.Errorf("the zone %q stands in the schedule: write it as timezone", zone)
	}
	if words[0] == "@every" {
		return parseEvery(words[1:])
	}
	if strings.HasPrefix(words[0], "@") {
		fields, err := parseName(words)
		if err != nil {
			return Schedule{}, err
		}
		words = strings.Fields(fields)
	}
	return parseFields(words, zone)
}

func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	const write = `write a name of the IANA time zone database, such as "Europe/Berlin" or "UTC"`
	// Local would be another zone on every machine. The other two are folders that only some machines have.
	if name == "Local" || strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/") {
		return nil, fmt.Errorf("timezone %q is not the same on every machine: %s", name, write)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("timezone %q is not known: %s", name, write)
	}
	return zone, nil
}

func parseEvery(words []string) (Schedule, error) {
	if len(words) != 1 {
		return Schedule{}, fmt.Errorf(`@every takes one interval: write it without spaces, such as "@every 1h30m"`)
	}
	d, err := time.ParseDuration(words[0])
	switch {
	case err != nil:
		return Schedule{}, fmt.Errorf(`%q is not an interval: write a number and a unit (h, m, s), such as `+
			`"@every 10m"; a day is 24h`, words[0])
	case d < time.Second:
		return Schedule{}, fmt.Errorf(`an interval of %s is too short: write "@every 1s" or more`, words[0])
	case d%time.Second != 0:
		return Schedule{}, fmt.Errorf(`an interval of %s is not whole seconds: write "@every %s" or more`,
			words[0], d.Truncate(time.Second))
	}
	s := Schedule{every: int64(d / time.Second)}
	s.canonical = fmt.Sprintf("@every %ds", s.every)
	return s, nil
}

// parseName returns the five fields that a name such as @daily stands for.
func parseName(words []string) (string, error) {
	if len(words) > 1 {
		return "", fmt.Errorf("%s takes nothing after it: %s", words[0], howToWrite)
	}
	fields, known := map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}[words[0]]
	switch {
	case known:
		return fields, nil
	case words[0] == "@reboot":
		return "", fmt.Errorf("@reboot is not a time, and what runs from the start is a leader: %s", howToWrite)
	}
	return "", fmt.Errorf("%s is not known: %s", words[0], howToWrite)
}

type field struct{ name, values, longer string }

const day = 4 // the place of the day of the week

func fields() []field {
	return []field{
		{"minute", "0-59", `; longer is "@every 90m"`}, {"hour", "0-23", `; longer is "@every 36h"`},
		{"day of month", "1-31", ""}, {"month", "1-12 or jan-dec", ""}, {"day of week", "0-7 or sun-sat", ""},
	}
}

func parseFields(words []string, zone *time.Location) (Schedule, error) {
	switch {
	case len(words) == 6 || len(words) == 7:
		return Schedule{}, fmt.Errorf(`%q has %d fields: write five, without seconds and year: minute, hour, `+
			`day of month, month, day of week; below a minute write "@every 30s"`, strings.Join(words, " "), len(words))
	case len(words) != len(fields()):
		return Schedule{}, fmt.Errorf("%q has %d of the five fields: %s", strings.Join(words, " "), len(words),
			howToWrite)
	}
	for i, f := range fields() {
		if err := f.check(i, words[i]); err != nil {
			return Schedule{}, err
		}
	}
	spec, err := parseSpec(words)
	if err != nil {
		return Schedule{}, fmt.Errorf("%q: %s", strings.Join(words, " "), howToWrite)
	}
	spec.DowOrDom = !strings.ContainsAny(words[2], "*?") && !strings.ContainsAny(words[day], "*?")
	s := Schedule{
		canonical: strings.Join(words, " "), zone: zone, fields: spec,
		elapsed: strings.ContainsAny(words[0]+words[1], "*?/"),
	}
	// The calendar repeats after 40 years at most, so it does not matter where one starts.
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, fmt.Errorf("%q never comes: no month that it names has such a day", s.canonical)
	}
	return s, nil
}

// check finds what is wrong with the text of one field.
func (f field) check(i int, text string) error {
	part := regexp.MustCompile(`^([*?]|[a-z0-9]+(-[a-z0-9]+)?)(/[0-9]+)?$`)
	one := strings.Fields("* * * * *")
	for _, one[i] = range strings.Split(text, ",") {
		if _, err := parseSpec(one); err != nil || !part.MatchString(one[i]) {
			return fmt.Errorf("%s %q: write %s, a list (1,15), a range (1-5), a star or a step (*/2)%s",
				f.name, text, f.values, f.longer)
		}
		if i == day && strings.Contains(one[i], "/") && passesSaturday(one[i]) {
			return fmt.Errorf("%s %q: a range with a step ends at Saturday, or Sunday as 7: write the days as a list, "+
				"such as fri,sun", f.name, text)
		}
	}
	return nil
}

// passesSaturday reports whether a range of days goes on with Sunday, as fri-mon. With a step the library counts that
// Sunday twice, as 7 and as 0.
func passesSaturday(part string) bool {
	days, _, _ := strings.Cut(part, "/")
	low, high, _ := strings.Cut(days, "-")
	if high == "" || high == "7" {
		return false
	}
	first, err1 := parseSpec(strings.Fields("* * * * " + low))
	last, err2 := parseSpec(strings.Fields("* * * * " + high))
	return err1 != nil || err2 != nil || last.Dow < first.Dow || low == "7"
}

// parseSpec has the library read five fields.
func parseSpec(words []string) (*cron.SpecSchedule, error) {
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	if err != nil {
		return nil, err
	}
	parsed, err := parser.WithMaxSearchYears(maxYears).Parse(strings.Join(words, " "))
	if err != nil {
		return nil, err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("a schedule of another type: %T", parsed)
	}
	spec.Location = time.UTC
	return spec, nil
}
