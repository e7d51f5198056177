package page

import (
	"strings"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/view"
)

// resource shows one resource.
func (p *painter) resource(d *Detail) {
	if j, ok := p.board.resource(p.request.Path); d == nil && ok { // it was not looked at yet
		d = &Detail{Resource: j}
	}
	if p.missing = d == nil; p.missing {
		dir, name := splitPath(p.request.Path)
		p.add(mainSlot, "absent", struct{ Dir, Name word }{dir, name})
		return
	}
	p.add(mainSlot, "head", headOf(d))
	if next := stepsOf(d.Resource); len(next) > 0 {
		p.add(mainSlot, "next", next)
	}
	if amiss := amissOf(d); len(amiss) > 0 {
		p.add(mainSlot, "amiss", words(amiss))
	}
	switch view.KindOf(&d.Observed).Name {
	case group.KindName:
		p.group(d)
	case queue.KindName:
		p.queue(d)
	default:
		p.job(d)
	}
	if n := d.Observed.Strangers; len(n) > 0 {
		p.add(mainSlot, "strangers", words(n))
	}
	p.add(mainSlot, "record", recordOf(&d.Observed))
}

// amissOf says what keeps the page from showing all, or a queue from working.
func amissOf(d *Detail) (all []string) {
	if d.Problem != "" {
		all = append(all, "not everything could be read: "+d.Problem)
	}
	if d.Queue != nil {
		all = append(all, d.Queue.Amiss()...)
	}
	if d.Redis != "" {
		all = append(all, "Redis does not tell how far batches are: "+d.Redis)
	}
	return all
}

// headView is the begin of the page of a resource.
type headView struct {
	Dir, Name    word
	Kind, Status word
	Class        string
	Classic      bool
	Needs        bool
	Meaning      word
	Counts       []count
	Created      time.Time
	LastRun      time.Time
	LastID       word
	Began        time.Time // the first worker joined
	Redis        word
}

// count is a number with its word, and of how many.
type count struct {
	Word, Class string
	N, Of       int
}

func headOf(d *Detail) headView {
	o := &d.Observed
	k := rowKeyOf(&d.Resource)
	v := headView{
		Kind: word(k.kind), Status: word(k.status), Class: statusClass(k.status), Classic: k.classic,
		Needs: needsSomebody(k), Meaning: word(view.Meaning(o, k.kind)), Created: o.Created, LastRun: parseTime(k.last),
		LastID: word(k.lastID), Began: d.Began(),
	}
	v.Dir, v.Name = splitPath(d.Path)
	if !view.HasCounts(o) {
		return v
	}
	switch k.kind {
	case job.KindName:
		v.Counts = []count{{"joined", "", k.joined, k.n}, {"live", okIf(k.live), k.live, 0}, {"completed", "", k.done, 0}}
		if left := job.Left(o); left > 0 && o.Record != nil {
			v.Counts = append(v.Counts, count{"left or lost", "bad", left, 0})
		}
	case group.KindName:
		duties := len(group.Of(o.Record).Duties)
		v.Counts = []count{{"members live", okIf(o.Live), o.Live, 0}, {"duties held", "", group.Held(o), duties}}
		if vacant := duties - group.Held(o); vacant > 0 {
			v.Counts = append(v.Counts, count{"vacant", "bad", vacant, 0})
		}
	case queue.KindName:
		f := queue.FoundOf(o)
		v.Redis = word(queue.Of(o.Record).Redis)
		v.Counts = []count{
			{plural(f.Executors, "executor", "executors"), okIf(f.Executors), f.Executors, 0},
			{plural(f.Watchers, "watcher", "watchers"), okIf(f.Watchers), f.Watchers, 0},
			{plural(f.Batches, "unfinished batch", "unfinished batches"), "", f.Batches, 0},
		}
	}
	return v
}

// okIf is the class of a count of what is live.
func okIf(n int) string {
	if n > 0 {
		return "ok"
	}
	return ""
}

// plural is the word for n things, which stands below the number.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// recordView is what the Record says.
type recordView struct {
	Stack, Generation, By, Address word
	Applied                        time.Time
	Edited                         bool
	Labels, Fields                 []pair
	ACL                            []word
	HistoryHref, StackHref         string
	None                           bool
	Problem                        word
}

type pair struct{ Name, Value word }

func recordOf(o *resource.Observed) recordView {
	rec := o.Record
	if rec == nil {
		return recordView{None: true, Problem: word(o.Problem)}
	}
	v := recordView{
		Stack: word(rec.Stack), Generation: word(rec.Generation), By: word(rec.By), Applied: parseTime(rec.Applied),
		Address: word(rec.Declaration.ID().Address), Edited: rec.Edited(), ACL: words(rec.ACL), Problem: word(o.Problem),
		HistoryHref: Request{View: History, Stack: rec.Stack}.URL(),
		StackHref:   Request{View: Overview, Stack: rec.Stack}.URL(),
	}
	for _, f := range rec.Declaration.Fields() {
		if label, ok := strings.CutPrefix(f.Name, "labels."); ok {
			v.Labels = append(v.Labels, pair{word(label), word(f.Value)})
			continue
		}
		v.Fields = append(v.Fields, pair{word(f.Name), word(f.Value)})
	}
	return v
}
