package group

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"

	"muster/group/schedule"
)

// maxMembers is how many members a group is made for. Nothing counts them.
const maxMembers = 5000

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
	most := maxMembers
	if percent {
		most = 100
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > most || strconv.Itoa(n) != number {
		return fmt.Errorf("%q is neither a whole number from 1 to %d nor a percentage from 1%% to 100%%: "+
			"write a number of members, such as 2, or \"50%%\" of them", text, maxMembers)
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
func checkSchedule(text, zone string) error {
	_, err := schedule.Parse(text, zone)
	return err
}
