package group

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"

	"muster/resource"
	"muster/resource/group/schedule"
)

// Duty is what exactly one member of a group does at a time. The fields from Schedule on are those of a cron. They are
// zero for a leader.
type Duty struct {
	Name     string `json:"-"`
	Type     Type   `json:"-"`
	Versions string `json:"versions"` // constraint on those of its holder, such as ">= 2.0, < 3"; empty: all versions
	Prefer   Prefer `json:"prefer"`

	Schedule      string            `json:"schedule"`       // when it runs: five fields, or @daily and the like
	Timezone      string            `json:"timezone"`       // of the schedule: a name of the IANA database
	StartDeadline resource.Duration `json:"start_deadline"` // a tick that has not begun after this is missed
	Missed        Missed            `json:"missed"`
	Overlap       Overlap           `json:"overlap"`
	Lost          Lost              `json:"lost"`
	Retries       int               `json:"retries"`     // how often a run that failed is tried again
	Timeout       resource.Duration `json:"timeout"`     // a run is ended after this
	Keep          int               `json:"keep"`        // how many runs are remembered
	AlertAfter    int               `json:"alert_after"` // it is failing when its last so many runs have failed
}

// Type is the type of a duty. It is the name of its block, too.
type Type string

// A leader goes on while its holder lives. A cron runs at ticks.
const (
	Leader Type = "leader"
	Cron   Type = "cron"
)

func Types() []Type { return []Type{Leader, Cron} }

// Prefer says which member a duty prefers.
type Prefer string

// With Any a duty stays while its holder lives. With Newest it moves to the newest version.
const (
	Any    Prefer = "any"
	Newest Prefer = "newest"
)

// Missed says which missed ticks of a cron are run.
type Missed string

// The latest one, none of them, or all (at most 100).
const (
	MissedLatest Missed = "latest"
	MissedSkip   Missed = "skip"
	MissedAll    Missed = "all"
)

// Overlap says what happens to a tick of a cron while its last run goes on.
type Overlap string

// The tick is skipped, or it waits; only one tick waits.
const (
	OverlapSkip Overlap = "skip"
	OverlapWait Overlap = "wait"
)

// Lost says what happens to a run whose holder was lost.
type Lost string

// The run begins again on another member (at least once), or it counts as done (at most once).
const (
	LostRerun Lost = "rerun"
	LostSkip  Lost = "skip"
)

// CheckDutyName says why name is not a valid name of a duty, or returns nil. It has the characters of every name, and
// at most 64 of them.
func CheckDutyName(name string) error { return resource.CheckShortName("duty", name, 64) }

// NewDuty is a duty with all defaults. A cron has no schedule.
func NewDuty(t Type, name string) Duty {
	d := Duty{Name: name, Type: t}
	resource.SetDefaults(DutyProperties(t), &d)
	return d
}

// Section is how the names of the duty's fields begin, without the last dot: "cron.nightly-report".
func (d Duty) Section() string { return string(d.Type) + "." + d.Name }

// fields are the duty's fields as those of its group. One of them never counts as a default: else nobody would see a
// duty that has nothing but defaults.
func (d Duty) fields() []resource.Field {
	fs := resource.FieldsOf(DutyProperties(d.Type), &d)
	for i := range fs {
		fs[i].IsDefault = fs[i].IsDefault && !(d.Type == Leader && fs[i].Name == "prefer")
		fs[i].Name = d.Section() + "." + fs[i].Name
	}
	return fs
}

// check returns an error that starts with the name of the first invalid field of d, or nil.
func (d Duty) check() error {
	if err := CheckDutyName(d.Name); err != nil {
		return fmt.Errorf("%s: %w", d.Section(), err)
	}
	if err := resource.Check(DutyProperties(d.Type), &d); err != nil {
		return fmt.Errorf("%s.%w", d.Section(), err)
	}
	return nil
}

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

func checkVersions(text string) error {
	if _, err := version.NewConstraint(text); err != nil {
		return fmt.Errorf(`%q is not a version constraint: write ">= 2.0", ">= 2.0, < 3" or "~> 2.1"`, text)
	}
	return nil
}

func checkSchedule(text, zone string) error {
	_, err := schedule.Parse(text, zone)
	return err
}

// Fits reports whether a member of this version may hold the duty. A version that is not one fits only a duty without a
// constraint.
func (d Duty) Fits(memberVersion string) bool {
	if d.Versions == "" {
		return true
	}
	fits, err := version.NewConstraint(d.Versions)
	if err != nil {
		return false
	}
	v, err := version.NewVersion(memberVersion)
	return err == nil && fits.Check(v)
}

// CompareVersions is negative if version a is older than b. What is no version is older than every version.
func CompareVersions(a, b string) int {
	va, errA := version.NewVersion(a)
	vb, errB := version.NewVersion(b)
	switch {
	case errA != nil && errB != nil:
		return strings.Compare(a, b)
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	}
	return va.Compare(vb)
}
