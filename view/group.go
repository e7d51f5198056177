package view

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/text"
)

// Group is who is in a group and who has its duties, as status and explain show it.
type Group struct {
	Assigner string    `json:"assigner,omitempty"`    // identity of the member that decides
	Passed   []string  `json:"passed_over,omitempty"` // identities of those that were passed over as the assigner
	Members  []Member  `json:"members,omitempty"`     // the live ones, the most senior first
	Duties   []Duty    `json:"duty_states"`           // by name
	Requests []Request `json:"requests,omitempty"`    // that wait for the assigner, the oldest first
	Waiting  int       `json:"waiting"`               // how many requests wait altogether
	Unread   []string  `json:"unread,omitempty"`      // znodes that cannot be decoded, and why
	// Silent is since when the assigner has left something undecided, if that is too long.
	Silent *time.Time `json:"silent_since,omitempty"`
	// Undecided is since when a member or a request waits for the assigner to look at it, by ZooKeeper's clock; zero: none
	// does. That is usual for a moment.
	Undecided time.Time `json:"-"`

	// Now is the time to which the ages in sentences are; a report sets it. If it is zero, they have times instead, so
	// that they change only when something happens.
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

	Given    string     `json:"given_to,omitempty"` // identity to which the assigner gave it
	Why      string     `json:"why,omitempty"`      // in the assigner's words
	PausedBy string     `json:"paused_by,omitempty"`
	Pinned   string     `json:"pinned_to,omitempty"`    // identity
	Leaving  string     `json:"handing_over,omitempty"` // identity of who was asked to hand over to any other member
	Failures []Failure  `json:"failures,omitempty"`
	NextTick *time.Time `json:"next_tick,omitempty"` // of a cron

	Failing bool              `json:"failing,omitempty"` // the last runs of the cron have failed
	Results *resource.Results `json:"results,omitempty"` // of a cron that has run

	Runs []Run `json:"runs,omitempty"` // of a cron, the newest first
}

// State is the state of a duty in a word: failing, held, paused or vacant.
func (d Duty) State() string {
	switch {
	case d.Failing:
		return string(group.Failing)
	case d.Holder != "":
		return "held"
	case d.PausedBy != "":
		return "paused"
	}
	return "vacant"
}

// failing says how often the last runs have failed, and when one last did not: "failed 3 times in a row; the last
// success was 2d ago".
func (d Duty) failing(now time.Time) string {
	line := group.FailedText(*d.Results)
	if d.Results.LastSuccess.IsZero() {
		return line + "; no run has succeeded yet"
	}
	return line + "; the last success was " + Ago(now, d.Results.LastSuccess)
}

// Failure says that a live member gave a duty up.
type Failure struct {
	Identity string    `json:"identity"`
	Count    int       `json:"count"` // how often it was to blame
	Until    time.Time `json:"until"` // it does not get the duty again before
	Because  string    `json:"because,omitempty"`
}

// Run is one run of a cron duty, or a range of its ticks that did not run.
type Run struct {
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
	Count   int        `json:"count,omitempty"`           // of a range: how many ticks
	More    bool       `json:"more,omitempty"`            // of a range: there are more than Count
	Output  string     `json:"output,omitempty"`          // its end, as the command wrote it
	LeftOut bool       `json:"output_left_out,omitempty"` // there is more output than a group is shown with
}

// Request waits for the assigner: an operator's request, or the message of a member that gave a duty up.
type Request struct {
	Duty    string    `json:"duty"`
	What    string    `json:"what"` // handover, unpin, pause, resume, resigned
	To      string    `json:"to,omitempty"`
	By      string    `json:"by"` // user@host, or the identity of a member
	Because string    `json:"because,omitempty"`
	Since   time.Time `json:"since"`
}

// ReadyText is "yes", "no" or "no seat".
func (m Member) ReadyText() string {
	switch {
	case m.Seat == "":
		return "no seat"
	case !m.Ready:
		return "no"
	}
	return "yes"
}

// Versions lists the versions of the members, the newest first.
func (d Group) Versions() []string {
	all := text.Each(d.Members, func(m Member) string { return m.Version })
	slices.Sort(all)
	all = slices.Compact(all)
	slices.SortStableFunc(all, func(a, b string) int { return group.CompareVersions(b, a) })
	return all
}

// Of lists the members of a version, the most senior first.
func (d Group) Of(version string) []Member {
	return slices.DeleteFunc(slices.Clone(d.Members), func(m Member) bool { return m.Version != version })
}

// Census counts members by version and names the assigner: "8 members: 4 of 2.0, 4 of 1.9; the assigner is a". It is
// empty if nobody is live.
func (d Group) Census() string {
	if len(d.Members) == 0 {
		return ""
	}
	counts := text.Each(d.Versions(), func(v string) string { return fmt.Sprintf("%d of %s", len(d.Of(v)), v) })
	assigner := "there is no assigner"
	if d.Assigner != "" {
		assigner = "the assigner is " + d.Assigner
	}
	return text.Count(len(d.Members), "member") + ": " + strings.Join(counts, ", ") + "; " + assigner
}

// lasting is "for 3h", or without ages "since 2026-07-01T02:00Z".
func (d Group) lasting(since time.Time) string {
	if d.Now.IsZero() {
		return "since " + Stamp(since)
	}
	return "for " + Age(d.Now, since)
}

// NextTickText is when a cron runs next.
func (d Duty) NextTickText() string {
	switch {
	case d.PausedBy != "":
		return "paused"
	case d.NextTick == nil:
		return "-"
	}
	return Stamp(*d.NextTick)
}

// Age is how long ago a run began, or the last tick was that did not run.
func (r Run) Age(now time.Time) string {
	return Age(now, *cmp.Or(r.Started, r.Tick, new(time.Time)))
}

// Title is the tick of a run, or "by hand 3".
func (r Run) Title() string {
	if r.Tick == nil {
		return fmt.Sprintf("by hand %d", r.Asked)
	}
	return Stamp(*r.Tick)
}

// StateText is "done", or of a range "missed 3".
func (r Run) StateText() string {
	switch {
	case r.Count > 1 && r.More:
		return fmt.Sprintf("%s %d or more", r.State, r.Count)
	case r.Count > 1:
		return fmt.Sprintf("%s %d", r.State, r.Count)
	}
	return r.State
}

// ExitText is the exit code; a dash if there is none.
func (r Run) ExitText() string { return known(r.Exit) }

// Took is how long the run took; a dash if it is not known.
func (r Run) Took() string {
	if r.Started == nil || r.Ended == nil {
		return "-"
	}
	return max(0, r.Ended.Sub(*r.Started)).Round(time.Second).String()
}

// Failed reports whether a run has failed, or its last attempt that ended.
func (r Run) Failed() bool { return r.State == "failed" || r.Exit != nil && *r.Exit != 0 }

// Summary says in a line what became of a run: "2026-07-01T02:00Z failed, exit 3, took 2s, attempt 2: timeout".
func (r Run) Summary() string {
	all := []string{r.Title() + " " + r.StateText()}
	if r.Exit != nil {
		all = append(all, "exit "+r.ExitText())
	}
	if r.Started != nil && r.Ended != nil {
		all = append(all, "took "+r.Took())
	}
	if r.Attempt > 1 {
		all = append(all, fmt.Sprintf("attempt %d", r.Attempt))
	}
	return strings.Join(all, ", ") + because(r.Because)
}

type groups struct{ plain }

func (groups) Columns() []string { return []string{"members and duties"} }

// Sections are the members of a group by version, its duties with their holders, and what waits and why.
func (groups) Sections(r Resource, now time.Time) []Section {
	if r.Group == nil {
		return nil
	}
	d := *r.Group
	d.Now = now
	members := [][]string{{"version", "member", "address", AgeHeading(now, "age"), "ready", "duties"}}
	for _, v := range d.Versions() {
		for _, m := range d.Of(v) {
			members = append(members, []string{
				m.Version, m.Identity, OrDash(m.Address), Age(now, m.Since), m.ReadyText(), fmt.Sprint(len(m.Duties)),
			})
		}
	}
	duties := [][]string{{"duty", "holder", "version", AgeHeading(now, "held for"), "epoch", "address"}}
	crons := [][]string{{"cron", "last run", "state", AgeHeading(now, "age"), "exit", "took", "next tick"}}
	for _, duty := range d.Duties {
		duties = append(duties, []string{
			duty.Name, OrDash(duty.Holder), OrDash(duty.Version), Age(now, *cmp.Or(duty.Since, new(time.Time))),
			OrDash(duty.Epoch), OrDash(duty.Address),
		})
		if duty.Type != group.Cron {
			continue
		}
		cron := []string{duty.Name, "-", "-", "-", "-", "-", duty.NextTickText()}
		if len(duty.Runs) > 0 {
			run := duty.Runs[0]
			copy(cron[1:], []string{run.Title(), run.StateText(), run.Age(now), run.ExitText(), run.Took()})
		}
		crons = append(crons, cron)
	}
	return []Section{
		{Lines: text.NonEmpty(d.Census())}, {Table: members}, {Table: duties}, {Table: crons},
		{Heading: "waits", Lines: d.Waits()},
	}
}

func (groups) Explained(r Resource, now time.Time) []Section {
	if r.Group == nil {
		return nil
	}
	d := *r.Group
	d.Now = now
	return []Section{{Lines: text.NonEmpty(d.Census())}, {Heading: "what waits", Lines: d.Waits()}}
}

func (groups) Progress(o *resource.Observed) string {
	progress := fmt.Sprintf("%d of %d duties held", group.Held(o), len(group.Of(o.Record).Duties))
	if n := group.Paused(o); n > 0 {
		progress += fmt.Sprintf(", %d paused", n)
	}
	return progress
}

func (groups) Figures(o *resource.Observed) []Figure {
	g := group.Of(o.Record)
	all := []Figure{{"members live", okIf(o.Live), o.Live, 0}, {"duties held", "", group.Held(o), len(g.Duties)}}
	for _, f := range []Figure{
		{"vacant", "bad", g.Vacant(o), 0}, {"failing", "bad", len(g.Failing(o)), 0}, {"paused", "warn", group.Paused(o), 0},
	} {
		if f.N > 0 {
			all = append(all, f)
		}
	}
	return all
}

func (groups) Gauges(r Resource) []Gauge {
	return []Gauge{{"duties", "Duties that are declared.", float64(len(group.Of(r.Observed.Record).Duties))}}
}

func (groups) Idle() string { return "no member is live: nobody does its duties" }

func (groups) document(r Resource, common resourceJSON) any {
	out := struct {
		resourceJSON
		Duties  int  `json:"duties"`
		Held    *int `json:"held,omitempty"`
		Paused  int  `json:"paused,omitempty"`
		Failing int  `json:"failing,omitempty"`
		*Group
	}{resourceJSON: common, Duties: len(group.Of(r.Observed.Record).Duties), Group: r.Group}
	if o := &r.Observed; common.Live != nil {
		out.Held, out.Paused, out.Failing = new(group.Held(o)), group.Paused(o), len(group.Of(o.Record).Failing(o))
	}
	return out
}

// joins is the command with which a process joins the group.
func joins(r Resource) string {
	return "muster member --group " + path.Base(r.Path) + " --root " + text.ShellWord(path.Dir(r.Path)) +
		" --version VERSION"
}

func (groups) next(r Resource) string {
	at := func(duty string) string { return text.ShellWord(r.Path + "/" + duty) }
	switch r.Observed.Status() {
	case resource.StatusReady:
		return joins(r) + " joins it"
	case group.Degraded:
		if r.Group == nil {
			break
		}
		for _, duty := range r.Group.Duties {
			if duty.State() == "vacant" {
				return "muster explain " + at(duty.Name)
			}
		}
		if group.Unassigned(&r.Observed) {
			return joins(r) + " joins it and assigns duties"
		}
	case group.Running:
		if group.Paused(&r.Observed) == 0 || r.Group == nil {
			break
		}
		for _, duty := range r.Group.Duties {
			if duty.State() == "paused" {
				return "muster group resume " + at(duty.Name) + " ends the pause"
			}
		}
	case group.Failing:
		if all := group.Of(r.Observed.Record).Failing(&r.Observed); len(all) > 0 {
			return "muster explain " + at(all[0].Duty()) + " shows its output"
		}
	}
	return ""
}

// maxNamedDuties is how many duties of which the same is to be said are named.
const maxNamedDuties = 5

// Waits says what of a group is not as it should be, or not settled, and why. What is the same of several duties is one
// line.
func (d Group) Waits() []string {
	var lines, said []string
	duties := map[string][]string{}
	for _, duty := range d.Duties {
		for _, line := range d.waitsOf(duty) {
			if duties[line] == nil {
				said = append(said, line)
			}
			duties[line] = append(duties[line], duty.Name)
		}
	}
	for _, line := range said {
		lines = append(lines, text.List(duties[line], maxNamedDuties)+": "+line)
	}
	lines = append(lines, d.silence()...)
	for _, q := range d.Requests {
		lines = append(lines, d.requestText(q))
	}
	if n := d.Waiting - len(d.Requests); n > 0 && len(d.Requests) > 0 {
		lines = append(lines, fmt.Sprintf("%d more wait for the assigner", n))
	}
	if d.Waiting > 0 && len(d.Members) == 0 {
		lines = append(lines, "no member is live: what waits for the assigner waits for the first one")
	}
	for _, line := range d.Unread {
		lines = append(lines, "cannot be read: "+line)
	}
	return lines
}

// WaitsFor says what waits for one duty, and for what.
func (d Group) WaitsFor(duty Duty) []string {
	lines := append(d.waitsOf(duty), d.silence()...)
	for _, q := range d.Requests {
		if q.Duty == duty.Name {
			lines = append(lines, d.requestText(q))
		}
	}
	return lines
}

// silence says of which members the group has waited in vain for a decision.
func (d Group) silence() (lines []string) {
	for _, identity := range d.Passed {
		lines = append(lines, identity+" was passed over as the assigner, because it decided nothing: look at that process")
	}
	if d.Assigner == "" && len(d.Members) > 0 {
		lines = append(lines, "nobody assigns duties: no live member decides, and who holds a duty keeps it; "+
			"a process of muster member joins and decides")
	}
	if d.Silent != nil && d.Assigner != "" {
		lines = append(lines, "the assigner, "+d.Assigner+", has decided nothing "+d.lasting(*d.Silent)+
			": end that process; one that cannot decide must take a seat x-")
	}
	return lines
}

// waitsOf says what of one duty is not as it should be, or not settled.
func (d Group) waitsOf(duty Duty) []string {
	var lines []string
	switch {
	case duty.PausedBy != "" && duty.Holder != "":
		lines = append(lines, "paused by "+duty.PausedBy+"; "+duty.Holder+" was asked to hand it over")
	case duty.PausedBy != "":
		lines = append(lines, "paused by "+duty.PausedBy)
	case len(d.Members) == 0 && duty.Holder == "": // the status says it
	case duty.Holder == "" && duty.Given != "":
		lines = append(lines, "given to "+duty.Given+", which has not taken it yet"+because(duty.Why))
	case duty.Holder == "":
		lines = append(lines, "nobody has it"+because(duty.Why))
	case duty.Given == "":
		lines = append(lines, duty.Holder+" was asked to hand it over"+because(duty.Why))
	case duty.Given != duty.Holder:
		lines = append(lines, duty.Given+" gets it when "+duty.Holder+" has handed it over"+because(duty.Why))
	case duty.Leaving == duty.Holder:
		lines = append(lines, duty.Holder+" was asked to hand it over, and no other member may have it")
	}
	if duty.Failing {
		lines = append(lines, duty.failing(d.Now))
	}
	if duty.Pinned != "" {
		lines = append(lines, "pinned to "+duty.Pinned)
	}
	for _, f := range duty.Failures {
		lines = append(lines, d.failureText(f))
	}
	return lines
}

// because is a reason as the end of a sentence; empty if there is none.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// failureText says that a member gave a duty up, and for how long it must wait.
func (d Group) failureText(f Failure) string {
	line := f.Identity + " gave it up" + because(f.Because)
	if f.Count > 1 {
		line = fmt.Sprintf("%s gave it up, to blame %d times%s", f.Identity, f.Count, because(f.Because))
	}
	switch {
	case d.Now.IsZero():
		line += "; it may have it again from " + Stamp(f.Until)
	case f.Until.After(d.Now):
		line += "; it may have it again in " + Short(f.Until.Sub(d.Now))
	}
	return line
}

func (d Group) requestText(q Request) string {
	what := q.What + " of " + q.Duty
	switch {
	case q.What == "resigned":
		what = q.By + " gave up " + q.Duty + because(q.Because)
	case q.To != "":
		what += " to " + q.To + " for " + q.By
	default:
		what += " for " + q.By
	}
	return what + ", waits for the assigner " + d.lasting(q.Since)
}

// Reasons lists what Reason can say.
func Reasons() []string {
	return []string{
		"holds it", "can do it", "waits", "is not ready", "has no seat", "has a version that does not fit",
		"does not list it",
	}
}

// Reason says what a member is to a duty: why it has it, or has not.
func (d Group) Reason(duty Duty, m Member) string {
	waits := func(f Failure) bool {
		return f.Identity == m.Identity && !d.Now.IsZero() && f.Until.After(d.Now)
	}
	switch {
	case m.Identity == duty.Holder:
		return "holds it"
	case !slices.Contains(m.Can, duty.Name):
		return "does not list it"
	case !duty.Declared.Fits(m.Version):
		return "has a version that does not fit"
	case m.Seat == "":
		return "has no seat"
	case !m.Ready:
		return "is not ready"
	case slices.ContainsFunc(duty.Failures, waits):
		return "waits"
	}
	return "can do it"
}

// Holding says who has a duty: "a (2.0, 10.0.3.11:7000) for 3h, epoch 4294967338".
func (d Group) Holding(duty Duty) string {
	if duty.Holder == "" {
		return "nobody"
	}
	line := duty.Holder
	if about := text.NonEmpty(duty.Version, duty.Address); len(about) > 0 {
		line += " (" + strings.Join(about, ", ") + ")"
	}
	if duty.Since != nil {
		line += " " + d.lasting(*duty.Since)
	}
	if duty.Epoch != 0 {
		line += fmt.Sprintf(", epoch %d", duty.Epoch)
	}
	return line
}

// Because is what the assigner says, or what is known without it.
func (d Duty) Because() string {
	switch {
	case d.Why != "":
		return d.Why
	case d.PausedBy != "":
		return "the duty is paused"
	case d.Given == "":
		return "the assigner has not decided about it yet"
	}
	return "the assigner gave it so, and has left no reason"
}
