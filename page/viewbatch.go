package page

import (
	"slices"

	"muster/view"
)

// batchPage is the begin of the page of a batch.
type batchPage struct {
	Batch  batchView
	Queue  row
	Detail *view.BatchDetail
}

// current is the batch that somebody looks at, with what Redis knows of it.
func (d *Detail) current() (BatchProgress, *view.BatchDetail) {
	detail := *d.Batch
	now := BatchProgress{BatchRow: detail.BatchRow}
	for _, b := range d.Batches {
		if b.ID == detail.ID && detail.How == "" {
			now, detail.BatchRow = b, b.BatchRow
		}
	}
	return now, &detail
}

// batch shows one batch, also one that has ended.
func (p *painter) batch(d *Detail) {
	d = p.known(d)
	if p.missing = d == nil || d.Batch == nil && d.Problem == ""; p.missing {
		p.add(mainSlot, "nobatch", struct {
			Queue row
			ID    string
		}{rowAt(p.request.Path).drawn(), p.request.Batch})
		return
	}
	if d.Batch == nil {
		p.add(mainSlot, "head", headOf(d))
	} else {
		now, detail := d.current()
		p.add(mainSlot, "batchhead", batchPage{batchOf(now), rowAt(p.request.Path).drawn(), detail})
		if steps := stepsIn(detail.Next()); len(steps) > 0 {
			p.add(mainSlot, "next", steps)
		}
	}
	if amiss := unreadOf(d); len(amiss) > 0 {
		p.add(mainSlot, "amiss", amiss)
	}
	p.redisAway(d)
	var hands []Hand
	for _, h := range d.Hands {
		if h.Batch == p.request.Batch {
			hands = append(hands, h)
		}
	}
	if len(hands) > 0 {
		p.add(mainSlot, "hands", hands)
	}
	p.dead(slices.DeleteFunc(slices.Clone(d.Dead), func(t DeadTask) bool { return t.Batch != p.request.Batch }),
		p.request.Path+"/"+p.request.Batch)
}
