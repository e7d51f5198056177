package storemodel

import (
	"regexp"
	"slices"
	"strings"
)

// keepResults is the begin of a batch's results that are kept for a time.
var keepResults = regexp.MustCompile(`^keep:[0-9]`)

func (m *Queue) begin(a []string) any {
	known := keepResults.MatchString(a[5]) || slices.Contains([]string{"watcher", "submitter", "discard"}, a[5])
	if w := num(a[3]); w < 1 || w > 1000 || num(a[4]) < 1 || num(a[6]) < 0 || num(a[6]) >= 1<<53 || !known {
		panic(Refused("ARGUMENT " + strings.Join(a[3:7], " ")))
	}
	m.identify(a[1])
	if b := m.Batches[a[0]]; b != nil {
		sameLife(b, a[2])
		return int64(0)
	}
	if len(m.Dead[a[0]]) > 0 {
		panic(Refused("DEAD " + a[0]))
	}
	if m.Bytes > 0 && m.Bytes+num(a[6]) > num(a[7]) {
		panic(Refused("FULL " + str(m.Bytes)))
	}
	m.born++
	b := &Batch{
		ID: a[0], Life: a[2], weight: num(a[3]), attempts: num(a[4]), Results: a[5], declared: num(a[6]), born: m.born,
		State: "submitting",
	}
	m.grow(b, b.declared)
	m.Batches[b.ID] = b
	return int64(1)
}

func (m *Queue) append(a []string) any {
	tasks, at := a[3:], num(a[2])
	if len(tasks) > maxItems {
		panic(Refused("LIMIT more than 1000 items"))
	}
	b := m.need(a[0])
	sameLife(b, a[1])
	end := at + float64(len(tasks))
	if end <= b.Tasks() && (at < b.Tasks() || len(tasks) == 0) {
		return int64(b.Tasks())
	}
	if at != b.Tasks() {
		panic(Refused("OFFSET " + str(b.Tasks())))
	}
	if b.State != "submitting" {
		panic(Refused("STATE " + b.State))
	}
	for _, p := range tasks {
		b.waiting, b.sum, b.big = append(b.waiting, p), b.sum+size(p), max(b.big, float64(len(p)))
	}
	return int64(b.Tasks())
}

func (m *Queue) open(a []string) any {
	b := m.need(a[0])
	sameLife(b, a[1])
	if b.Tasks() != num(a[2]) {
		panic(Refused("OFFSET " + str(b.Tasks())))
	}
	if b.State == "cancelled" {
		panic(Refused("STATE " + b.State))
	}
	if b.State != "submitting" {
		return int64(0)
	}
	m.change(b, func() { b.State = "open" })
	m.grow(b, b.sum-b.declared)
	m.wake()
	return int64(1)
}
