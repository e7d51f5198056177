package report

import (
	"muster/apply"
	"muster/plan"
	"muster/resource"
)

// item is one job in a report, or one finding about it. Reports of plan, apply and drift all consist of items.
type item struct {
	row     plan.Row
	word    string // the category in which it is counted: "delete", "refused", "missing"
	symbol  string
	title   string // the word, and details
	because string
	next    string // what a user can do next; may be empty
	fields  []field
	changes []field // what differs, as "8 -> 12"; fields has them too
	level   level
	verdict verdict
	outcome *apply.Outcome // nil except in a report of apply
	equal   []item         // all that this item stands for; empty if it stands for itself. See joinEqual
}

// level is how important an item is.
type level int

const (
	quiet level = iota // nothing to do
	note
	warning
	failure
)

// verdict is the result of an item in a test report.
type verdict int

const (
	passed verdict = iota
	failed
	skipped // not evaluated, or ignored
)

// place is the place of the declaration: "jobs.hcl:29".
func (it item) place() string {
	if it.row.New == nil {
		return "not declared"
	}
	return it.row.At()
}

// category holds the items of one word, in the order of a plan.
type category struct {
	word  string
	items []item
}

// count is how many rows the items of a category stand for.
func (c category) count() int {
	n := 0
	for _, it := range c.items {
		n += it.count()
	}
	return n
}

// byCategory returns a category for each word, also if it has no items, since reports show all counts.
func byCategory(words []string, items []item) []category {
	byWord := map[string][]item{}
	for _, it := range items {
		byWord[it.word] = append(byWord[it.word], it)
	}
	categories := make([]category, len(words))
	for i, word := range words {
		categories[i] = category{word, byWord[word]}
	}
	return categories
}

// planItems returns one item for each row.
func planItems(p plan.Plan, g Given) []item {
	from := movedFrom(p)
	items := make([]item, len(p.Rows))
	for i, r := range p.Rows {
		a := r.Action()
		items[i] = item{
			row: r, word: string(a), symbol: a.Symbol(), title: r.Title(), because: becauseAndLoss(r),
			next: g.Paste(r.Proceed()), fields: fields(r, p.Stack, from[r.Address()], g), changes: changes(r, p.Stack),
		}
		items[i].level, items[i].verdict = assess(r)
	}
	return items
}

// becauseAndLoss says why a row has its action, and what it loses.
func becauseAndLoss(r plan.Row) string {
	if loss := r.LossText(); loss != "" {
		return r.Because() + "; loses " + loss
	}
	return r.Because()
}

func assess(r plan.Row) (level, verdict) {
	switch a := r.Action(); {
	case a == plan.Blocked:
		return warning, failed
	case r.Old.Class() == resource.Unreadable, r.Old.Class() == resource.Damaged:
		return warning, failed
	case r.Deletes():
		return warning, passed
	case attention(r):
		return note, passed
	}
	return quiet, passed
}

func planWords() []string {
	var words []string
	for _, a := range plan.Actions() {
		words = append(words, string(a))
	}
	return words
}

// applyItems returns one item for each row. The item of a change shows its outcome.
func applyItems(p plan.Plan, outcomes []apply.Outcome, g Given) []item {
	byPath := map[string]*apply.Outcome{}
	for i := range outcomes {
		byPath[outcomes[i].Row.Path] = &outcomes[i]
	}
	items := planItems(p, g)
	for i := range items {
		it := &items[i]
		o := byPath[it.row.Path]
		if o == nil {
			continue
		}
		it.outcome = o
		it.word, it.title, it.because, it.next = string(o.Result), string(o.Result), advice(*o), ""
		it.level, it.verdict = assessOutcome(*o)
		switch o.Result {
		case apply.Applied:
			it.word, it.title, it.because = past(o.Row.Action()), past(o.Row.Action()), becauseAndLoss(o.Row)
		case apply.Refused, apply.Unknown, apply.NotStarted, apply.Waiting:
			it.next = g.Paste("muster plan")
		}
		if o.Err != nil && o.Result != apply.Failed { // the advice of Failed includes the cause
			it.because = cause(*o) + "; " + it.because
		}
		it.fields = append(it.fields, outcomeFields(*o)...)
	}
	return items
}

func assessOutcome(o apply.Outcome) (level, verdict) {
	switch o.Result {
	case apply.Refused, apply.Failed, apply.Unknown:
		return failure, failed
	case apply.Waiting, apply.NotStarted:
		return warning, skipped
	}
	return note, passed
}

func outcomeFields(o apply.Outcome) []field {
	if o.Result == apply.Applied {
		return []field{{"result", string(o.Result)}, {tookKey, took(o.Took)}}
	}
	fs := []field{{"result", string(o.Result)}}
	if d := detail(o); d != "" {
		fs = append(fs, field{"detail", d})
	}
	return append(fs, field{"what now", advice(o)})
}

func applyWords() []string {
	var words []string
	for _, a := range []plan.Action{plan.Create, plan.Replace, plan.Delete, plan.Update} {
		words = append(words, past(a))
	}
	for _, r := range apply.Results()[1:] {
		words = append(words, string(r))
	}
	return append(words, planWords()[4:]...)
}
