package storemodel

import (
	"maps"
	"slices"
)

// clone is a copy that shares nothing.
func (s Saved) clone() Saved {
	all := Saved{}
	for prefix, q := range s {
		all[prefix] = q.clone()
	}
	return all
}

func (m *Queue) clone() *Queue {
	c := *m
	c.Batches, c.Seats, c.Dead = map[string]*Batch{}, map[string]*Seat{}, map[string][]Task{}
	for id, b := range m.Batches {
		n := *b
		n.Finished, n.waiting = slices.Clone(b.Finished), slices.Clone(b.waiting)
		n.discarded = slices.Clone(b.discarded)
		n.again, n.late = slices.Clone(b.again), slices.Clone(b.late)
		c.Batches[id] = &n
	}
	for name, s := range m.Seats {
		n := *s
		n.Hand = maps.Clone(s.Hand)
		c.Seats[name] = &n
	}
	for id, tasks := range m.Dead {
		c.Dead[id] = slices.Clone(tasks)
	}
	c.deadSince = maps.Clone(m.deadSince)
	return &c
}
