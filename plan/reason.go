package plan

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

// Symbol is the ASCII symbol of an action; None and Unmanaged have none.
func (a Action) Symbol() string {
	switch a {
	case Create:
		return "+"
	case Replace:
		return "-/+"
	case Delete:
		return "-"
	case Update:
		return "~"
	case Blocked:
		return "!"
	case LeftRunning:
		return "?"
	}
	return ""
}

// Reason is why a row has its action; the action table has one line for each. Everything else about a row is derived
// from it. Its value is also the action_reason of a saved plan.
type Reason string

// The reasons, in the order in which they are tried.
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

// Reasons lists every reason in the order in which they are tried.
func Reasons() []Reason {
	return []Reason{
		IsForeign, IsUnreadable, OtherKind, OtherStack, OtherHome,
		IsDamaged, DamagedBeyondRepair, DamagedLive, DamagedLeftover,
		MembersStopping, IsProtected, NotThere, AlreadyRunning, ClassicLive, ClassicLeftover, Equal, MutableDiffers,
		OwnerDiffers, RecordEdited, ReadyDiffers, LiveDiffers, WorkUnfinished, StaleLeftover, TerminatedIdle,
		TerminatedKept, CompletedKept, CompletedDone, Undeclared, UndeclaredLive, NotOurs, StrangerChildren,
	}
}

// columns are the columns of the action table. Row.fill replaces the words in braces by facts of the row.
type columns struct {
	action  Action
	how     string // what apply does in detail; shown after the action
	because string // why
	proceed string // what a user can do next
}

// columns is the only switch on reasons, so the columns of a row cannot contradict each other.
func (r Reason) columns() columns {
	switch r {
	case IsForeign:
		return columns{Blocked, "", "a znode is there that is not a {kind}{problem}",
			"choose another name or root, or remove the znode yourself; muster explain {address} shows it"}
	case IsUnreadable:
		return columns{Blocked, "", "it cannot be read{problem}", "muster explain {address} lists what is there"}
	case OtherKind:
		return columns{Blocked, "", "a {recorded kind} has this name", "choose another name or root"}
	case OtherStack:
		return columns{Blocked, "", "owned by stack {owner}",
			"choose another name or root, or name {owner} in take_over"}
	case OtherHome:
		return columns{Blocked, "", "owned by stack {owner} of home {home}",
			"write home = \"{home}\" in the muster block again, or choose another name or root"}
	case IsDamaged:
		return columns{Update, "in place: put back what was {deleted}", "{lost}{lost data}", ""}
	case DamagedBeyondRepair:
		return columns{Blocked, "", "{lost}; {beyond repair}",
			"muster explain {address} lists what is there"}
	case DamagedLive:
		return columns{Blocked, "", "{lost}; {beyond repair}, and {live}",
			"apply again after the run, or muster terminate {name} && muster apply"}
	case DamagedLeftover:
		return columns{Replace, "delete of what is left, then create",
			"{lost}; {beyond repair}, and none is live{grace}", ""}
	case MembersStopping:
		return columns{Blocked, "", "asked to stop, and {live}",
			"apply again when they have left; muster status {name} shows them"}
	case IsProtected:
		return columns{Blocked, "", "protected", "{unprotect}"}
	case StrangerChildren:
		return columns{Blocked, "", "the {kind} znode has a child that is no {member}",
			"find out whose it is, remove it yourself, apply again"}
	case NotThere:
		return columns{Create, "", "no {kind} znode", ""}
	case AlreadyRunning:
		return columns{Blocked, "", "already running, {live}",
			`on_running = "fail": apply again after the run{or terminate}`}
	case ClassicLive:
		return columns{Blocked, "", "a classic job, {live}", "apply again after the run"}
	case ClassicLeftover:
		return columns{Replace, "delete of the classic job, then create",
			"made by classic workers, and none is live{grace}", ""}
	case Equal:
		return columns{None, "", "equal", ""}
	case MutableDiffers:
		return columns{Update, "in place", "only what may change {during a run} differs", ""}
	case OwnerDiffers:
		return columns{Update, "in place", "take_over names its owner, stack {owner}", ""}
	case RecordEdited:
		return columns{Update, "in place", "its record was edited by hand: the digest does not verify", ""}
	case ReadyDiffers:
		return columns{Replace, "delete, then create", "{nobody joined} (a {member} that joins first wins)", ""}
	case LiveDiffers:
		return columns{Blocked, "", "{live}", "muster terminate {name} && muster apply, or apply again {after the run}"}
	case WorkUnfinished:
		return columns{Blocked, "", "{unfinished}",
			"apply again when nothing is unfinished; muster status {name} shows what is"}
	case StaleLeftover:
		return columns{Replace, "stale delete, then create", "{member}s have joined and none is live{grace}", ""}
	case TerminatedIdle:
		return columns{Replace, "delete, then create", "terminated, and no {member} is live", ""}
	case TerminatedKept:
		return columns{Update, "in place: open it again", "terminated, and no {member} is live", ""}
	case CompletedKept:
		return columns{None, "", "completed and retained", ""}
	case CompletedDone:
		return columns{Replace, "delete, then create", "the run has completed", ""}
	case Undeclared:
		return columns{Delete, "", "owned by stack {owner}, {status}", ""}
	case UndeclaredLive:
		return columns{LeftRunning, "", "owned by stack {owner}, {live}",
			"muster terminate {address}, or apply again {after the run}"}
	}
	return columns{Unmanaged, "", "{unmanaged}", ""}
}

// Action is the action of a row with this reason.
func (r Reason) Action() Action { return r.columns().action }
