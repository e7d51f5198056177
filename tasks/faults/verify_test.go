package faults

import (
	"fmt"
	"slices"

	"muster/resource/queue"
	"muster/zkstate/znode"
)

// verify checks what happened.
func (k *soakRun) verify() {
	found, twice, problems, err := readLedger(k.dir + "/ledger")
	if err != nil {
		k.t.Fatal(err)
	}
	ended, err := k.ended()
	if err != nil {
		k.t.Fatal(err)
	}
	total := finding{}
	for _, b := range k.batches {
		end, ok := ended[b.id()]
		if !ok {
			problems = append(problems, b.id()+" has not ended")
			continue
		}
		how := map[queue.Results]znode.EndState{
			queue.ResultsWatcher: znode.EndCollected, queue.ResultsSubmitter: znode.EndCollected,
			queue.ResultsDiscard: znode.EndDiscarded,
		}[b.results()]
		if _, keep := b.results().Keep(); keep {
			how = znode.EndCancelled
		}
		if end.How != how || end.Done+end.Dead != int64(b.tasks) || end.Dead != int64(b.dead()) {
			problems = append(problems, fmt.Sprintf("%s, of which %d are meant to die, ended as %+v", b.id(), b.dead(), end))
		}
		f, ok := found[b.id()]
		if b.results() != queue.ResultsWatcher {
			f, ok = k.received[b.id()]
			problems = append(problems, f.Problems...)
		}
		if !ok && b.results() != queue.ResultsDiscard {
			problems = append(problems, "nobody got the results of "+b.id())
		}
		total.Done, total.Dead, total.Again = total.Done+f.Done, total.Dead+f.Dead, total.Again+f.Again
	}
	if s, err := k.state(); err != nil || len(s.Batches)+len(s.Processes) > 0 || len(s.Unread) > 0 {
		problems = append(problems, fmt.Sprintf("left in ZooKeeper: %+v, %v", s, err))
	}
	slices.Sort(problems)
	const most = 30
	for _, p := range problems[:min(len(problems), most)] {
		k.t.Error(p)
	}
	k.t.Logf("results: %d done, %d dead, %d after more than one attempt; %d batches were watched twice; %d problems",
		total.Done, total.Dead, total.Again, twice, len(problems))
}
