package plan

import "sync"

// Action is what apply does with a row.
type Action string

// The actions, in the order in which a plan lists them. The first four change ZooKeeper.
const (
	Create      Action = "create"
	Replace     Action = "replace"
	Delete      Action = "delete"
	Update      Action = "update"
	Blocked     Action = "blocked"
	LeftRunning Action = "left running"
	None        Action = "unchanged"
	Unmanaged   Action = "unmanaged"
)

// Actions lists every action in the order in which a plan lists them.
func Actions() []Action {
	return []Action{Create, Replace, Delete, Update, Blocked, LeftRunning, None, Unmanaged}
}

// Changes reports whether apply commits a change.
func (a Action) Changes() bool { return a == Create || a == Replace || a == Delete || a == Update }

// deletes reports whether the resource is deleted, whether or not it is created anew.
func (a Action) deletes() bool { return a == Replace || a == Delete }

// Symbol is the ASCII symbol of an action; None and Unmanaged have none.
func (a Action) Symbol() string {
	return map[Action]string{
		Create: "+", Replace: "-/+", Delete: "-", Update: "~", Blocked: "!", LeftRunning: "?",
	}[a]
}

// Reason is why a row has its action; the action table has one line for each. Everything else about a row is derived
// from it. Its value is also the action_reason of a saved plan.
type Reason string

// The reasons, by what they are about. decide.go tries them in an order of its own.
const (
	IsForeign           Reason = "foreign"
	IsUnreadable        Reason = "unreadable"
	OtherKind           Reason = "other_kind"
	OtherStack          Reason = "other_stack"
	OtherHome           Reason = "other_home"
	IsDamaged           Reason = "damaged"
	DamagedBeyondRepair Reason = "damaged_beyond_repair"
	DamagedLive         Reason = "damaged_live"
	DamagedLeftover     Reason = "damaged_leftover"
	MembersStopping     Reason = "workers_stopping"
	IsProtected         Reason = "protected"
	NotThere            Reason = "missing"
	AlreadyRunning      Reason = "already_running"
	ClassicLive         Reason = "classic_live"
	ClassicLeftover     Reason = "classic_leftover"
	Equal               Reason = "equal"
	MutableDiffers      Reason = "mutable_differs"
	OwnerDiffers        Reason = "owner_differs"
	RecordEdited        Reason = "record_edited"
	ReadyDiffers        Reason = "immutable_differs_ready"
	LiveDiffers         Reason = "immutable_differs_live"
	WorkUnfinished      Reason = "work_unfinished"
	StaleLeftover       Reason = "stale"
	TerminatedIdle      Reason = "terminated"
	TerminatedKept      Reason = "terminated_kept"
	CompletedKept       Reason = "completed_retained"
	CompletedDone       Reason = "completed"
	Undeclared          Reason = "undeclared"
	UndeclaredLive      Reason = "undeclared_live"
	NotOurs             Reason = "unmanaged"
	StrangerChildren    Reason = "strangers"
)

// actionRow is a row of the action table. Row.fill replaces the words in braces by facts of a row of the plan; words.go
// lists them.
type actionRow struct {
	reason  Reason
	action  Action
	how     string // what apply does in detail; shown after the action
	because string // why
	proceed string // what a user can do next
}

// actionTable has a row for each reason. Each stands in it once, so a row of a plan cannot
// contradict itself.
var actionTable = sync.OnceValue(func() []actionRow {
	return []actionRow{
		{IsForeign, Blocked, "", "a znode is there that is not a {kind}{problem}",
			"choose another name or root, or remove the znode yourself; muster explain {address} shows it"},
		{IsUnreadable, Blocked, "", "it cannot be read{problem}", "muster explain {address} lists what is there"},
		{OtherKind, Blocked, "", "a {recorded kind} has this name", "choose another name or root"},
		{OtherStack, Blocked, "",
			"owned by stack {owner}", "choose another name or root, or name {owner} in take_over"},
		{OtherHome, Blocked, "", "owned by stack {owner} of home {home}",
			"write home = \"{home}\" in the muster block again, or choose another name or root"},
		{IsDamaged, Update, "in place: put back what was {deleted}", "{lost}{lost data}", ""},
		{DamagedBeyondRepair, Blocked, "",
			"{lost}; {beyond repair}", "muster explain {address} lists what is there"},
		{DamagedLive, Blocked, "", "{lost}; {beyond repair}, and {live}",
			"apply again after the run, or muster terminate {name} && muster apply"},
		{DamagedLeftover, Replace, "delete of what is left, then create",
			"{lost}; {beyond repair}, and none is live{grace}", ""},
		{MembersStopping, Blocked, "",
			"asked to stop, and {live}", "apply again when they have left; muster status {name} shows them"},
		{IsProtected, Blocked, "", "protected", "{unprotect}"},
		{NotThere, Create, "", "no {kind} znode", ""},
		{AlreadyRunning, Blocked, "",
			"already running, {live}", `on_running = "fail": apply again after the run{or terminate}`},
		{ClassicLive, Blocked, "", "a classic job, {live}", "apply again after the run"},
		{ClassicLeftover, Replace, "delete of the classic job, then create",
			"made by classic workers, and none is live{grace}", ""},
		{Equal, None, "", "equal", ""},
		{MutableDiffers, Update, "in place", "only what may change {during a run} differs", ""},
		{OwnerDiffers, Update, "in place", "take_over names its owner, stack {owner}", ""},
		{RecordEdited, Update, "in place", "its record was edited by hand: the digest does not verify", ""},
		{ReadyDiffers, Replace, "delete, then create", "{nobody joined} (a {member} that joins first wins)", ""},
		{LiveDiffers, Blocked, "",
			"{live}", "muster terminate {name} && muster apply, or apply again {after the run}"},
		{WorkUnfinished, Blocked, "",
			"{unfinished}", "apply again when nothing is unfinished; muster status {name} shows what is"},
		{StaleLeftover, Replace, "stale delete, then create", "{member}s have joined and none is live{grace}", ""},
		{TerminatedIdle, Replace, "delete, then create", "terminated, and no {member} is live", ""},
		{TerminatedKept, Update, "in place: open it again", "terminated, and no {member} is live", ""},
		{CompletedKept, None, "", "completed and retained", ""},
		{CompletedDone, Replace, "delete, then create", "the run has completed", ""},
		{Undeclared, Delete, "", "owned by stack {owner}, {status}", ""},
		{UndeclaredLive, LeftRunning, "",
			"owned by stack {owner}, {live}", "muster terminate {address}, or apply again {after the run}"},
		{NotOurs, Unmanaged, "", "{unmanaged}", ""},
		{StrangerChildren, Blocked, "", "the {kind} znode has a child that is no {member}",
			"find out whose it is, remove it yourself, apply again"},
	}
})

// Reasons lists every reason in the order of the table.
func Reasons() []Reason {
	var all []Reason
	for _, row := range actionTable() {
		all = append(all, row.reason)
	}
	return all
}

// columns is the row of a reason; one that is not known is NotOurs.
func (r Reason) columns() actionRow {
	rows := actionTable()
	for i := range rows {
		if rows[i].reason == r {
			return rows[i]
		}
	}
	return NotOurs.columns()
}

// Action is the action of a row with this reason.
func (r Reason) Action() Action { return r.columns().action }
