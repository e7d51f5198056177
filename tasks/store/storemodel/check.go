package storemodel

import (
	"fmt"
	"strings"
)

// Check says what of the books does not balance: each task of a batch is in one place, no seat holds what another one
// does, a suspect task is alone in its hand, and the bytes are those of what is there.
func (m *Queue) Check() error {
	for name, s := range m.Seats {
		if _, held := s.Hand[s.suspect]; s.suspect != "" && (!held || s.Role == "e" && len(s.Hand) > 1) {
			return fmt.Errorf("the seat %s has %d in hand, of which %s is suspect", name, len(s.Hand), s.suspect)
		}
	}
	bytes := 0.0
	for _, id := range sortedKeys(m.Batches) {
		b := m.Batches[id]
		if err := m.checkBatch(b); err != nil {
			return fmt.Errorf("batch %s: %w", id, err)
		}
		bytes += b.bytes
	}
	for _, tasks := range m.Dead {
		for _, d := range tasks {
			bytes += size(d.payload, d.reason)
		}
	}
	if bytes != m.Bytes {
		return fmt.Errorf("the queue counts %.0f bytes, and has %.0f", m.Bytes, bytes)
	}
	return nil
}

func (m *Queue) checkBatch(b *Batch) error {
	places, bytes := map[string]string{}, 0.0
	put := func(index, where string, item float64) error {
		if other := places[index]; other != "" {
			return fmt.Errorf("task %s is %s, and %s", index, other, where)
		}
		if num(index) >= b.taken {
			return fmt.Errorf("task %s is %s, and of those before %.0f only", index, where, b.taken)
		}
		places[index] = where
		bytes += item
		return nil
	}
	for _, r := range b.Finished {
		part := strings.SplitN(r, ":", 4)
		if err := put(part[0], "done", size(part[3])); err != nil {
			return err
		}
	}
	for _, index := range b.discarded {
		if err := put(index, "done", 0); err != nil {
			return err
		}
	}
	for where, tasks := range map[string][]Task{"returned": b.again, "late": b.late} {
		for _, t := range tasks {
			if err := put(t.Index, where, size(t.payload)); err != nil {
				return err
			}
		}
	}
	for name, s := range m.Seats {
		for f, h := range s.Hand {
			id, index, _ := strings.Cut(f, ":")
			if id != b.ID || h.born != b.born {
				continue
			}
			if index == "watch" {
				if b.Holder != name {
					return fmt.Errorf("seat %s has claimed it, and its holder is %q", name, b.Holder)
				}
			} else if err := put(index, "in the hand of "+name, size(h.payload)); err != nil {
				return err
			}
		}
	}
	if float64(len(places))+b.Dead != b.taken {
		return fmt.Errorf("%.0f tasks were taken, %d are somewhere, and %.0f dead", b.taken, len(places), b.Dead)
	}
	for _, p := range b.waiting {
		bytes += size(p)
	}
	setAside := b.bytes == b.declared && (b.State == "submitting" || b.State == "cancelled") // it was never opened
	if bytes != b.bytes && !setAside {
		return fmt.Errorf("it counts %.0f bytes, and has %.0f", b.bytes, bytes)
	}
	return nil
}
