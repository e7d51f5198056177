package group

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a configuration means the same on a machine without zones

	"github.com/hashicorp/go-version"
)

// MaxMembers is how many members a group can have.
const MaxMembers = 5000

// PromoteAfter says how many live and capable members of a newer version make it the newest: a number of members ("1"),
// or a percentage ("50%") of the members of the version that has the duty.
type PromoteAfter string

// Members is how many members are needed while holders members have the version that has the duty. It is at least 1; a
// percentage is rounded up.
func (p PromoteAfter) Members(holders int) int {
	number, percent := strings.CutSuffix(string(p), "%")
	n, _ := strconv.Atoi(number) // checkPromoteAfter has accepted it
	if percent {
		n = (n*holders + 99) / 100
	}
	return max(1, n)
}

func checkPromoteAfter(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	most := MaxMembers
	if percent {
		most = 100
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > most || strconv.Itoa(n) != number {
		return fmt.Errorf("%q is neither a whole number from 1 to %d nor a percentage from 1%% to 100%%: "+
			"write a number of members, such as 2, or \"50%%\" of them", text, MaxMembers)
	}
	return nil
}

// checkVersions says why text is not a version constraint, or returns nil.
func checkVersions(text string) error {
	if _, err := version.NewConstraint(text); err != nil {
		return fmt.Errorf(`%q is not a version constraint: write ">= 2.0", ">= 2.0, < 3" or "~> 2.1"`, text)
	}
	return nil
}

// The schedule with which a zone is checked, and the zone with which a schedule is checked.
const (
	anySchedule = "@daily"
	utc         = "UTC"
)

// checkSchedule says why a schedule cannot be used in a time zone, or returns nil.
func checkSchedule(text, zone string) error { return checkForm(text, zone) }

// checkForm checks how many fields a schedule has, and that the zone is known.
func checkForm(text, zone string) error {
	fields := len(strings.Fields(text))
	switch {
	case fields == 0:
		return errors.New("it is empty: write five fields, such as \"0 2 * * *\", or @daily")
	case fields != 5 && !strings.HasPrefix(text, "@"):
		return fmt.Errorf("%q has %d of the five fields: write minute, hour, day, month and weekday", text, fields)
	case zone == "" || zone == "Local":
		return fmt.Errorf("%q is another zone on each machine: write a name such as \"Europe/Berlin\"", zone)
	}
	if _, err := time.LoadLocation(zone); err != nil {
		return fmt.Errorf("%q is not a time zone: write a name such as \"Europe/Berlin\"", zone)
	}
	return nil
}
