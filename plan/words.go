package plan

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/resource"
	"muster/text"
)

// Name is the name of the znode.
func (r Row) Name() string { return path.Base(r.Path) }

// Title is the action in words: "replace (stale delete, then create)", "blocked: 5 workers are live".
func (r Row) Title() string {
	c := r.Reason.columns()
	switch {
	case c.action == Blocked:
		return string(c.action) + ": " + r.Because()
	case c.action == Update:
		return string(c.action) + " " + r.fill(c.how)
	case c.how != "":
		return string(c.action) + " (" + c.how + ")"
	}
	return string(c.action)
}

// Because says why the row has its action.
func (r Row) Because() string { return r.fill(r.Reason.columns().because) }

// Proceed says what a user can do next if apply does nothing; empty otherwise.
func (r Row) Proceed() string { return r.fill(r.Reason.columns().proceed) }

// fill replaces the words in braces in a sentence of Reason.columns by the facts of r.
func (r Row) fill(sentence string) string {
	r.Old = cmp.Or(r.Old, &resource.Observed{})
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(sentence, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		if fact := facts()[name]; fact != nil { // TestEveryReasonHasWords finds a name that is not there
			b.WriteString(fact(r))
		} else {
			b.WriteString("{" + name + "}")
		}
		sentence = after
	}
}

// facts are what stands for the words in braces. They are asked only about rows whose Old is not nil.
var facts = sync.OnceValue(func() map[string]func(Row) string {
	return map[string]func(Row) string{
		"address":       func(r Row) string { return text.ShellWord(r.Address()) },
		"name":          Row.Name,
		"kind":          func(r Row) string { return r.Kind().Name },
		"member":        func(r Row) string { return r.Kind().Member },
		"recorded kind": Row.recordedKind,
		"owner":         Row.owner,
		"home":          func(r Row) string { return cmp.Or(r.recorded(), &resource.Record{}).Home },
		"status":        func(r Row) string { return string(r.Old.Status()) },
		"live":          Row.liveText,
		"nobody joined": func(r Row) string { return r.ifInPlace("nobody is live", "nobody has joined yet") },
		"during a run":  func(r Row) string { return r.ifInPlace("while members are live", "during a run") },
		"after the run": func(r Row) string { return r.ifInPlace("when they have left", "after the run") },
		"unfinished":    Row.unfinishedText,
		"or terminate":  Row.orTerminate,
		"problem":       Row.problem,
		"grace":         Row.graceText,
		"unprotect":     Row.unprotect,
		"unmanaged":     Row.unmanaged,
		"lost":          Row.lost,
		"deleted":       Row.deleted,
		"lost data":     Row.lostData,
		"beyond repair": func(r Row) string { return r.Old.BeyondRepair },
	}
})

func (r Row) owner() string { return cmp.Or(r.recorded(), &resource.Record{}).Stack }

func (r Row) lost() string { return r.Old.LostText(r.Kind().Name + " znode") }

func (r Row) recordedKind() string {
	switch {
	case r.recorded() != nil:
		return r.recorded().Declaration.Kind().Name
	case r.Old.Classic:
		return "classic job"
	}
	return ""
}

// ifInPlace is one of two texts. The members of a resource that is kept in place come and go: no run of them ends.
func (r Row) ifInPlace(yes, no string) string {
	if r.inPlace() {
		return yes
	}
	return no
}

// liveText counts the live members. A classic resource does not say how many it needs.
func (r Row) liveText() string {
	if r.recorded() != nil {
		return r.recorded().Declaration.LiveText(r.Old)
	}
	return text.Plural(r.Old.Live-len(r.Old.Strangers), "worker is live", "workers are live")
}

// unfinishedText counts the unfinished work: "2 batches are unfinished".
func (r Row) unfinishedText() string {
	if r.recorded() == nil {
		return ""
	}
	w := r.recorded().Declaration.Kind().Unfinished
	return text.Plural(r.unfinished(), w.One+" is unfinished", w.Many+" are unfinished")
}

// deleted is what happened to what is lost.
func (r Row) deleted() string {
	if r.Old.Has(resource.PartReference) && r.Old.Has(resource.PartCopy) {
		return "deleted"
	}
	return "changed"
}

// lostData says what a repair of a resource that is kept in place cannot bring back.
func (r Row) lostData() string {
	if !r.inPlace() || r.Old.BeyondRepair == "" {
		return ""
	}
	return "; " + r.Old.BeyondRepair
}

// problem is why the resource is unreadable or foreign, behind a colon; empty if it is neither.
func (r Row) problem() string {
	if r.Old.Problem == "" {
		return ""
	}
	return ": " + r.Old.Problem
}

func (r Row) graceText() string {
	if !r.Stale() {
		return ""
	}
	seconds := strconv.FormatFloat(time.Duration(r.Grace()).Seconds(), 'f', -1, 64)
	return " (apply makes sure for " + seconds + " s)"
}

// orTerminate is empty for a classic job: its workers do not watch for a request to stop.
func (r Row) orTerminate() string {
	if r.Old.Classic {
		return ""
	}
	return ", or muster terminate " + r.Name() + " && muster apply"
}

func (r Row) unprotect() string {
	if r.New == nil {
		return "declare it with protect = false, apply, and remove the declaration again"
	}
	return "write protect = false, and apply"
}

func (r Row) unmanaged() string {
	switch o := r.Old; {
	case o.Class() == resource.Foreign:
		return "not a job" + r.problem()
	case o.Class() == resource.Unreadable:
		return "it cannot be read" + r.problem()
	case o.Classic:
		return "made by classic workers, " + string(o.Status())
	case r.recorded() == nil:
		return r.lost() + "; " + o.BeyondRepair
	default:
		return "owned by stack " + r.owner() + ", " + string(o.Status())
	}
}

// Loss lists what members have saved and the commit of r deletes: everything if it deletes or replaces the resource;
// else what was saved for sections that the declaration does not have any more.
func (r Row) Loss() []resource.Saved {
	switch {
	case r.Old == nil || len(r.Old.Saved) == 0 || !r.Action().Changes() || r.Reason == IsDamaged:
		return nil
	case r.Action().deletes():
		return r.Old.Saved
	}
	kept := map[string]bool{}
	for _, f := range r.New.Fields() {
		kept[f.Name[:max(0, strings.LastIndexByte(f.Name, '.'))]] = true
	}
	return slices.DeleteFunc(slices.Clone(r.Old.Saved), func(s resource.Saved) bool { return kept[s.Section] })
}

// Deletes reports whether the commit of r deletes the resource, or something that members have saved.
func (r Row) Deletes() bool { return r.Action() == Delete || len(r.Loss()) > 0 }

// Deletions lists those of rows that delete something. Guards against accidents count them.
func Deletions(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !r.Deletes() })
}

// CountText counts rows by their kinds: "1 group and 2 jobs".
func CountText(rows []Row) string {
	return text.CountEach(text.Each(rows, func(r Row) string { return r.Kind().Name }))
}

// DeletionsText says what rows delete: "2 jobs", "what was saved in 1 group".
func DeletionsText(rows []Row) string {
	var whole, inside []string
	for _, r := range Deletions(rows) {
		if r.Action() == Delete {
			whole = append(whole, r.Kind().Name)
		} else {
			inside = append(inside, r.Kind().Name)
		}
	}
	switch {
	case len(inside) == 0:
		return text.CountEach(whole)
	case len(whole) == 0:
		return "what was saved in " + text.CountEach(inside)
	}
	return text.CountEach(whole) + ", and what was saved in " + text.CountEach(inside)
}

// LossText says what Loss lists, first what is open and what is large: "3 keys, 12 KiB, 1 open operation: leader.main
// (1 key, 8 KiB, open operation checkpoint), cron.report (2 keys, 4 KiB)"; empty if nothing is lost.
func (r Row) LossText() string {
	const most = 3 // sections that are named
	lost := slices.SortedStableFunc(slices.Values(r.Loss()), func(a, b resource.Saved) int {
		return cmp.Or(cmp.Compare(len(b.Open), len(a.Open)), cmp.Compare(b.Bytes, a.Bytes))
	})
	var all resource.Saved
	sections := make([]string, len(lost))
	for i, s := range lost {
		all.Keys += s.Keys
		all.Bytes += s.Bytes
		all.Open = append(all.Open, s.Open...)
		names := ""
		for _, name := range s.Open {
			names += ", open operation " + name
		}
		sections[i] = s.Section + " (" + amount(s) + names + ")"
	}
	if len(lost) < 2 {
		return strings.Join(sections, "")
	}
	total := amount(all)
	if n := len(all.Open); n > 0 {
		total += ", " + text.Count(n, "open operation")
	}
	return total + ": " + text.List(sections, most)
}

// amount is "3 keys, 12 KiB".
func amount(s resource.Saved) string { return text.Count(s.Keys, "key") + ", " + text.Size(s.Bytes) }
