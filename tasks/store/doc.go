// Package store is what a queue keeps in Redis: the scripts in lua, one for each change, and the calls of them.
//
// A script reads and checks everything before its first write, so a refused call changes nothing. A call is sent once:
// after an error that is not a [Refusal], its outcome is unknown, and [Queue.Sync] tells a seat what it holds.
// Repeating a call is safe, also late: the scripts know a repeat by the offset, the life, the version or the seq.
//
// It refuses to evict keys under memory pressure, to guess who is alive (ZooKeeper knows), and to run a batch whose
// keys do not fit its counts.
//
// Every key begins with muster:{<generation>}: and is one of
//
//	q               hash: format, id, vt (virtual ns), bytes, mean (ns), seen, born, slots, weights, evicted (ms)
//	ids             sorted set: every batch that has keys, by its number
//	hands           hash: seat → role:slots:seq, or shut:how:role:slots; how: 0 left, 1 died, 2 its suspect is charged
//	h:<seat>        hash: batch:index → number of the batch:attempt:deaths:charge:payload; batch:watch → its number;
//	                suspect → the field of the suspect, which is a claim or alone
//	run             sorted set: batches that can be taken from, by their virtual time
//	b:<id>          hash: the counts of a batch, see [Batch]
//	b:<id>:w        list: payloads of waiting tasks; the first one has the index "taken"
//	b:<id>:again    list: returned tasks, index:attempt:deaths:payload; suspects on the left
//	b:<id>:late     sorted set: the same, by when they are due (ms)
//	b:<id>:r        list: results, index:attempt:ns:result
//	late            sorted set: batch → when its first late task is due
//	dead            sorted set: batch with dead tasks → when the first of them died
//	d:<id>          list: dead tasks, index:attempt:deaths:ms:length of the reason:reason and payload
//	full            sorted set: complete batches that nobody claimed → when a watcher may claim them; inf is never
//	wake:e, wake:w  lists: at most one token for an executor or a watcher that waits
package store
