package storemodel

import (
	"fmt"
	"strings"
)

func (m *Queue) set(a []string) any {
	b := m.need(a[0])
	sameLife(b, a[1])
	if num(a[2]) <= b.Version {
		return int64(0)
	}
	if a[4] != "cancelled" && (b.State == "submitting" || b.State == "cancelled") {
		panic(Refused("STATE " + b.State))
	}
	m.change(b, func() { b.Version, b.weight, b.State = num(a[2]), num(a[3]), a[4] })
	m.wake()
	return int64(1)
}

func (m *Queue) retry(a []string) any {
	id, most, before, to := a[0], int(num(a[1])), num(a[2]), a[3]
	b := m.need(to)
	sameLife(b, a[4])
	switch {
	case id == to && b.Holder != "":
		panic(Refused("CLAIMED " + b.Holder))
	case id == to && (b.State == "submitting" || b.State == "cancelled"), id != to && b.State != "submitting":
		panic(Refused("STATE " + b.State))
	case id != to && num(a[5]) < b.Tasks():
		return int64(0)
	case id != to && num(a[5]) != b.Tasks():
		panic(Refused("OFFSET " + str(b.Tasks())))
	}
	moved := m.popDead(id, most, before)
	m.change(b, func() {
		for _, d := range moved {
			b.big = max(b.big, float64(len(d.payload)))
			if id == to {
				m.grow(b, size(d.payload))
				b.Dead--
				b.putBack(Task{Index: d.Index, Attempt: 1, payload: d.payload})
			} else {
				b.waiting, b.sum = append(b.waiting, d.payload), b.sum+size(d.payload)
			}
		}
		if id == to && b.tries > 0 {
			b.tries, b.falls, b.because = 0, 0, ""
			if b.Complete() {
				b.fullAt = b.claimable(0)
				m.wakeW = true
			}
		}
	})
	m.wake()
	return int64(len(moved))
}

// popDead removes the first dead tasks of a batch that died before a time.
func (m *Queue) popDead(id string, most int, before float64) (popped []Task) {
	all, bytes := m.Dead[id], 0
	for len(all) > 0 && len(popped) < most && bytes < maxBytes && all[0].At < before {
		d := all[0]
		popped, all = append(popped, d), all[1:]
		m.Bytes -= size(d.payload, d.reason)
		bytes += len(deadEntry(d))
	}
	m.Dead[id] = all
	if len(all) == 0 {
		delete(m.deadSince, id)
	}
	return popped
}

func deadEntry(d Task) string {
	return strings.Join([]string{
		d.Index, str(d.Attempt), str(d.deaths), str(d.At), fmt.Sprint(len(d.reason)), d.reason + d.payload,
	}, ":")
}

func (m *Queue) drop(a []string) any {
	return int64(len(m.popDead(a[0], int(num(a[1])), num(a[2]))))
}

func (m *Queue) remove(a []string) any {
	b := m.Batches[a[0]]
	if b == nil {
		return int64(0)
	}
	if a[1] != "" {
		sameLife(b, a[1])
	}
	if s := m.Seats[b.Holder]; s != nil {
		delete(s.Hand, b.ID+":watch")
	}
	m.Bytes -= b.bytes
	delete(m.Batches, b.ID)
	m.wake()
	return int64(1)
}
