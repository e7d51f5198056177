package store

import (
	"fmt"
	"strings"
)

func (m *model) set(a []string) any {
	b := m.need(a[0])
	sameLife(b, a[1])
	if num(a[2]) <= b.version {
		return int64(0)
	}
	if a[4] != "cancelled" && (b.state == "submitting" || b.state == "cancelled") {
		panic(refused("STATE " + b.state))
	}
	m.change(b, func() { b.version, b.weight, b.state = num(a[2]), num(a[3]), a[4] })
	m.wake()
	return int64(1)
}

func (m *model) retry(a []string) any {
	id, most, before, to := a[0], int(num(a[1])), num(a[2]), a[3]
	b := m.need(to)
	sameLife(b, a[4])
	switch {
	case id == to && b.holder != "":
		panic(refused("CLAIMED " + b.holder))
	case id == to && (b.state == "submitting" || b.state == "cancelled"), id != to && b.state != "submitting":
		panic(refused("STATE " + b.state))
	case id != to && num(a[5]) < b.tasks():
		return int64(0)
	case id != to && num(a[5]) != b.tasks():
		panic(refused("OFFSET " + str(b.tasks())))
	}
	moved := m.popDead(id, most, before)
	m.change(b, func() {
		for _, d := range moved {
			b.big = max(b.big, float64(len(d.payload)))
			if id == to {
				m.grow(b, size(d.payload))
				b.dead--
				b.putBack(modelTask{index: d.index, attempt: 1, payload: d.payload})
			} else {
				b.waiting, b.sum = append(b.waiting, d.payload), b.sum+size(d.payload)
			}
		}
		if id == to && b.tries > 0 {
			b.tries, b.falls, b.because = 0, 0, ""
			if b.complete() {
				b.fullAt = b.claimable(0)
				m.wakeW = true
			}
		}
	})
	m.wake()
	return int64(len(moved))
}

// popDead removes the first dead tasks of a batch that died before a time.
func (m *model) popDead(id string, most int, before float64) (popped []modelTask) {
	all, bytes := m.dead[id], 0
	for len(all) > 0 && len(popped) < most && bytes < MaxBytes && all[0].at < before {
		d := all[0]
		popped, all = append(popped, d), all[1:]
		m.bytes -= size(d.payload, d.reason)
		bytes += len(deadEntry(d))
	}
	m.dead[id] = all
	return popped
}

func deadEntry(d modelTask) string {
	return strings.Join([]string{
		d.index, str(d.attempt), str(d.deaths), str(d.at), fmt.Sprint(len(d.reason)), d.reason + d.payload,
	}, ":")
}

func (m *model) drop(a []string) any {
	return int64(len(m.popDead(a[0], int(num(a[1])), num(a[2]))))
}

func (m *model) remove(a []string) any {
	b := m.batches[a[0]]
	if b == nil {
		return int64(0)
	}
	if a[1] != "" {
		sameLife(b, a[1])
	}
	if s := m.seats[b.holder]; s != nil {
		delete(s.hand, b.id+":watch")
	}
	m.bytes -= b.bytes
	delete(m.batches, b.id)
	m.wake()
	return int64(1)
}
