package report

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/text"
)

// GroupDetail is who is in a group and who has its duties, as status and explain show it.
type GroupDetail struct {
	Assigner string         `json:"assigner,omitempty"`    // identity of the member that decides
	Passed   []string       `json:"passed_over,omitempty"` // identities of those that were passed over as the assigner
	Members  []Member       `json:"members,omitempty"`     // the live ones, the most senior first
	Duties   []Duty         `json:"duty_states"`           // by name
	Requests []GroupRequest `json:"requests,omitempty"`    // that wait for the assigner, the oldest first
	Waiting  int            `json:"waiting"`               // how many requests wait altogether
	Unread   []string       `json:"unread,omitempty"`      // znodes that cannot be decoded, and why
	// Silent is since when the assigner has left something undecided, if that is too long.
	Silent *time.Time `json:"silent_since,omitempty"`

	// Now is the time to which ages are. If it is zero, text has times instead, so that it changes only when something
	// happens.
	Now time.Time `json:"-"`
}

// Member is one live member of a group.
type Member struct {
	Identity string    `json:"identity"`
	Version  string    `json:"version"`
	Address  string    `json:"address,omitempty"`
	Since    time.Time `json:"since"` // it joined
	Ready    bool      `json:"ready"`
	Seat     string    `json:"seat,omitempty"`   // its name; absent if somebody deleted it by hand
	Duties   []string  `json:"duties,omitempty"` // that the assigner gave it
	Can      []string  `json:"can,omitempty"`    // duties that it can do
}

// Duty is one declared duty of a group.
type Duty struct {
	Declared group.Duty `json:"-"`
	Name     string     `json:"name"`
	Type     group.Type `json:"type"`
	Holder   string     `json:"holder,omitempty"` // identity; absent: nobody. The next four are the holder's
	Version  string     `json:"version,omitempty"`
	Address  string     `json:"address,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Epoch    int64      `json:"epoch,omitempty"` // 0: not known

	Given    string        `json:"given_to,omitempty"` // identity to which the assigner gave it
	Why      string        `json:"why,omitempty"`      // in the assigner's words
	PausedBy string        `json:"paused_by,omitempty"`
	Pinned   string        `json:"pinned_to,omitempty"`    // identity
	Leaving  string        `json:"handing_over,omitempty"` // identity of who was asked to hand over to any other member
	Failures []DutyFailure `json:"failures,omitempty"`
	NextTick *time.Time    `json:"next_tick,omitempty"` // of a cron
	Runs     []DutyRun     `json:"runs,omitempty"`      // of a cron, the newest first
}

// DutyFailure says that a live member gave a duty up.
type DutyFailure struct {
	Identity string    `json:"identity"`
	Count    int       `json:"count"` // how often it was to blame
	Until    time.Time `json:"until"` // it does not get the duty again before
	Because  string    `json:"because,omitempty"`
}

// DutyRun is one run of a cron duty, or a range of its ticks that did not run.
type DutyRun struct {
	Tick    *time.Time `json:"tick,omitempty"`  // of a range the last one; absent: an operator asked for it
	Asked   int64      `json:"asked,omitempty"` // the number of that request, from 1
	State   string     `json:"state"`
	By      string     `json:"by,omitempty"` // identity
	Started *time.Time `json:"started,omitempty"`
	Ended   *time.Time `json:"ended,omitempty"`
	Exit    *int       `json:"exit,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	AskedBy string     `json:"asked_by,omitempty"` // user@host
	Because string     `json:"because,omitempty"`
	Count   int        `json:"count,omitempty"` // of a range: how many ticks
	More    bool       `json:"more,omitempty"`  // of a range: there are more than Count
}

// GroupRequest waits for the assigner: an operator's request, or the message of a member that gave a duty up.
type GroupRequest struct {
	Duty    string    `json:"duty"`
	What    string    `json:"what"` // handover, unpin, pause, resume, resigned
	To      string    `json:"to,omitempty"`
	By      string    `json:"by"` // user@host, or the identity of a member
	Because string    `json:"because,omitempty"`
	Since   time.Time `json:"since"`
}

// Group writes one group: its status, its members by version, its duties with their holders, what waits and why, and
// what the user can do next.
// j.Group is set.
func Group(w io.Writer, j JobStatus, o Options) error {
	p := newPage(w, o)
	obs, d := &j.Observed, j.Group
	p.wrap(bold, j.Path+"  "+statusWord(obs), 2)
	p.newline()
	p.wrap(plain, meaning(obs, kindOf(obs).Name), 2)
	p.newline()
	if len(d.Members) > 0 {
		p.wrap(plain, d.census(), 2)
		p.newline()
		p.newline()
		p.table(d.memberRows())
	}
	if len(d.Duties) > 0 {
		p.newline()
		p.table(d.dutyRows())
	}
	if rows := d.cronRows(); len(rows) > 1 {
		p.newline()
		p.table(rows)
	}
	p.listSection("waits", d.waits())
	if n := len(obs.Strangers); n > 0 {
		p.newline()
		p.wrap(plain, text.Plural(n, "child of the group znode is", "children of the group znode are")+" no member: "+
			names(obs.Strangers)+"; find out whose, and remove it yourself", 2)
		p.newline()
	}
	p.created(obs, o.Now)
	if next := cmp.Or(next(obs, j.Path), d.next(obs, j.Path)); next != "" {
		p.newline()
		p.next(o.Given.Paste(next))
	}
	return p.flush()
}

// listSection writes a heading and lines below it, unless there are none.
func (p *page) listSection(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.newline()
	p.write(bold, heading)
	p.newline()
	for _, line := range lines {
		p.moveTo(2)
		p.wrap(plain, line, 4)
		p.newline()
	}
}

// versions lists the versions of the members, the newest first.
func (d GroupDetail) versions() []string {
	var all []string
	for _, m := range d.Members {
		all = append(all, m.Version)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	slices.SortStableFunc(all, func(a, b string) int { return group.CompareVersions(b, a) })
	return all
}

// of lists the members of a version, the most senior first.
func (d GroupDetail) of(version string) []Member {
	return slices.DeleteFunc(slices.Clone(d.Members), func(m Member) bool { return m.Version != version })
}

// census counts members by version and names the assigner: "8 members: 4 of 2.0, 4 of 1.9; the assigner is a".
func (d GroupDetail) census() string {
	var counts []string
	for _, v := range d.versions() {
		counts = append(counts, fmt.Sprintf("%d of %s", len(d.of(v)), v))
	}
	assigner := "there is no assigner"
	if d.Assigner != "" {
		assigner = "the assigner is " + d.Assigner
	}
	return text.Count(len(d.Members), "member") + ": " + strings.Join(counts, ", ") + "; " + assigner
}

// age is how long ago t was.
func (d GroupDetail) age(t time.Time) string { return Age(d.Now, t) }

func (d GroupDetail) memberRows() [][]string {
	rows := [][]string{{"version", "member", "address", AgeHeading(d.Now, "age"), "ready", "duties"}}
	for _, v := range d.versions() {
		for _, m := range d.of(v) {
			ready := "yes"
			switch {
			case m.Seat == "":
				ready = "no seat"
			case !m.Ready:
				ready = "no"
			}
			rows = append(rows, []string{
				m.Version, m.Identity, orDash(m.Address), d.age(m.Since), ready, fmt.Sprint(len(m.Duties)),
			})
		}
	}
	return rows
}

func (d GroupDetail) dutyRows() [][]string {
	rows := [][]string{{"duty", "holder", "version", AgeHeading(d.Now, "held for"), "epoch", "address"}}
	for _, duty := range d.Duties {
		since, epoch := "-", "-"
		if duty.Since != nil {
			since = d.age(*duty.Since)
		}
		if duty.Epoch != 0 {
			epoch = fmt.Sprint(duty.Epoch)
		}
		rows = append(rows, []string{
			duty.Name, orDash(duty.Holder), orDash(duty.Version), since, epoch, orDash(duty.Address),
		})
	}
	return rows
}

func (d GroupDetail) cronRows() [][]string {
	rows := [][]string{{"cron", "last run", "state", AgeHeading(d.Now, "age"), "exit", "took", "next tick"}}
	for _, duty := range d.Duties {
		if duty.Type != group.Cron {
			continue
		}
		row := []string{duty.Name, "-", "-", "-", "-", "-", duty.nextTick()}
		if len(duty.Runs) > 0 {
			run := duty.Runs[0]
			row = []string{duty.Name, run.name(), run.state(), run.age(d.Now), run.exit(), run.took(), duty.nextTick()}
		}
		rows = append(rows, row)
	}
	return rows
}

// nextTick is when a cron runs next.
func (d Duty) nextTick() string {
	switch {
	case d.PausedBy != "":
		return "paused"
	case d.NextTick == nil:
		return "-"
	}
	return stamp(*d.NextTick)
}

// age is how long ago a run began, or the last tick was that did not run.
func (r DutyRun) age(now time.Time) string {
	switch {
	case r.Started != nil:
		return Age(now, *r.Started)
	case r.Tick != nil:
		return Age(now, *r.Tick)
	}
	return "-"
}

// name is the tick of a run, or "by hand 3".
func (r DutyRun) name() string {
	if r.Tick == nil {
		return fmt.Sprintf("by hand %d", r.Asked)
	}
	return stamp(*r.Tick)
}

// state is "done", or of a range "missed 3".
func (r DutyRun) state() string {
	switch {
	case r.Count > 1 && r.More:
		return fmt.Sprintf("%s %d or more", r.State, r.Count)
	case r.Count > 1:
		return fmt.Sprintf("%s %d", r.State, r.Count)
	}
	return r.State
}

func (r DutyRun) exit() string {
	if r.Exit == nil {
		return "-"
	}
	return fmt.Sprint(*r.Exit)
}

func (r DutyRun) took() string {
	if r.Started == nil || r.Ended == nil {
		return "-"
	}
	return max(0, r.Ended.Sub(*r.Started)).Round(time.Second).String()
}

// next says what the user can do about a group that is as it should be read.
func (d GroupDetail) next(o *resource.Observed, at string) string {
	switch o.Status() {
	case resource.StatusReady:
		return "muster member --group " + path.Base(at) + " --root " + path.Dir(at) + " --version VERSION joins it"
	case group.Degraded:
		paused := ""
		for _, duty := range d.Duties {
			switch {
			case duty.Holder != "":
			case duty.PausedBy == "":
				return "muster explain " + at + "/" + duty.Name
			case paused == "":
				paused = "muster resume " + at + "/" + duty.Name
			}
		}
		return paused
	}
	return ""
}
