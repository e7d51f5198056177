package zkstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Queue describes how ZooKeeper holds queues. It does not know Redis: see Kind.Unlink.
func Queue() Kind {
	return Kind{
		Kind: queue.Kind(), Folders: always(znode.QueueFolders()), Count: countQueue, Saved: guardBatches, Outside: true,
		Detail: func(ctx context.Context, r *Reader, v *view.Resource, _ time.Time) (err error) {
			v.Queue, err = r.QueueState(ctx, &v.Observed)
			return err
		},
	}
}

// countQueue counts the live processes by role, and the unfinished batches. It costs a read for each live process; if
// no executor is live, also one for each unfinished batch: what is paused does not wait.
func countQueue(ctx context.Context, r *Reader, o *resource.Observed) error {
	q, g := queue.Of(o.Record), o.Record.Generation
	var f queue.Found
	stat, _, err := r.source.Exists(ctx, znode.Batches(q.Root, g))
	if err != nil {
		return err
	}
	f.Batches = int(stat.NumChildren)
	if f.Executors, f.Watchers, err = r.countRoles(ctx, q); err != nil {
		return err
	}
	if f.Executors == 0 && f.Batches > 0 {
		if f.Waiting, err = r.countOpen(ctx, znode.Batches(q.Root, g)); err != nil {
			return err
		}
	}
	h, err := r.queueHealth(ctx, q.Root, g)
	if err != nil {
		return err
	}
	if h != nil {
		f.Lost, f.Refused = min(len(h.Lost)+h.MoreLost, f.Batches), h.Redis != ""
		f.Failed, f.Full = min(len(h.Failed), f.Batches), h.Full > 0
		if f.Watchers == 0 {
			f.Completed = min(h.Completed, f.Batches)
		}
		f.Waiting = max(0, f.Waiting-h.Completed-len(h.Failed))
	}
	o.Counts = f.Counts()
	return nil
}

func (r *Reader) countRoles(ctx context.Context, q queue.Queue) (executors, watchers int, err error) {
	live, err := r.readChildren(ctx, q.Path())
	for _, e := range live {
		p, bad := znode.Decode[znode.QueueProcess](e.body)
		switch {
		case bad != nil || e.stat.EphemeralOwner == 0:
		case p.Role == queue.Executor:
			executors++
		case p.Role == queue.Watcher:
			watchers++
		}
	}
	return executors, watchers, err
}

// countOpen counts the open batches that are not noted as completed. One that cannot be decoded counts, since somebody
// has to look at it.
func (r *Reader) countOpen(ctx context.Context, folder string) (int, error) {
	all, err := r.readChildren(ctx, folder)
	n := 0
	for _, e := range all {
		b, bad := znode.Decode[znode.BatchManifest](e.body)
		if bad != nil || b.State == znode.BatchOpen && b.Completed.IsZero() {
			n++
		}
	}
	return n, err
}

// queueHealth reads what is amiss; nil if nobody who is still there has looked, or if it cannot be decoded.
func (r *Reader) queueHealth(ctx context.Context, root, g string) (*znode.Health, error) {
	body, _, _, err := zkconn.IfThere(r.source.Get(ctx, znode.QueueHealth(root, g)))
	h, bad := znode.Decode[znode.Health](body)
	if err != nil || bad != nil {
		return nil, err
	}
	there, err := r.exists(znode.SeatAt(root, g, h.Seat))(ctx)
	if err != nil || !there {
		return nil, err
	}
	return &h, nil
}

// guardBatches returns the operations with which a delete or a replace is refused if there are unfinished batches, also
// if one is submitted meanwhile: they delete the folder of the batches. If the folder does not exist yet, they create
// and delete it, which is refused if somebody has created it. Nothing that is saved in a queue is read.
func guardBatches(ctx context.Context, r *Reader, o *resource.Observed, left resource.Declaration) (
	saved []resource.Saved, guards []zkconn.Op, err error,
) {
	if left != nil || !o.Has(resource.PartGeneration) {
		return nil, nil, nil
	}
	folder := znode.Batches(queue.Of(o.Record).Root, o.Record.Generation)
	there, err := r.exists(folder)(ctx)
	if err != nil || there {
		return nil, []zkconn.Op{zkconn.DeleteOp(folder, -1)}, err
	}
	guards, err = guardAbsent(o, folder)
	return nil, guards, err
}

// QueueState reads who is in a queue and which batches it has. o was observed and has a Record. It takes a read for
// each of them and for each seat, many at a time. The result is not a snapshot.
func (r *Reader) QueueState(ctx context.Context, o *resource.Observed) (*view.Queue, error) {
	q, g := queue.Of(o.Record), o.Record.Generation
	s := &view.Queue{}
	if err := r.queueProcesses(ctx, q, g, s); err != nil {
		return nil, err
	}
	all, err := r.readChildren(ctx, znode.Batches(q.Root, g))
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		b, bad := znode.Decode[znode.BatchManifest](e.body)
		if bad != nil {
			s.Unread = append(s.Unread, znode.Batch(q.Root, g, e.name)+": "+bad.Error())
			continue
		}
		s.Batches = append(s.Batches, batchOf(e.name, b))
	}
	slices.SortFunc(s.Batches, func(a, b view.Batch) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	health, err := r.queueHealth(ctx, q.Root, g)
	if health != nil {
		// The note of the smallest seat may be older than the end of a batch.
		ended := func(id string) bool {
			return !slices.ContainsFunc(s.Batches, func(b view.Batch) bool { return b.ID == id })
		}
		s.Lost, s.Failed = slices.DeleteFunc(health.Lost, ended), slices.DeleteFunc(health.Failed, ended)
		s.Refused, s.Full = health.Redis, health.Full
	}
	return s, err
}

// queueProcesses reads the live processes, and which of them has the smallest seat. A process is matched with its seat
// by its nonce: the seat of one that has just gone may still be there.
func (r *Reader) queueProcesses(ctx context.Context, q queue.Queue, g string, s *view.Queue) error {
	live, err := r.readChildren(ctx, q.Path())
	if err != nil {
		return err
	}
	byNonce := map[string]string{}
	for _, e := range live {
		if e.stat.EphemeralOwner == 0 {
			continue
		}
		p, bad := znode.Decode[znode.QueueProcess](e.body)
		if bad != nil {
			s.Unread = append(s.Unread, znode.Live(q.Root, q.Name, e.name)+": "+bad.Error())
			continue
		}
		byNonce[p.Nonce] = e.name
		s.Processes = append(s.Processes, view.Process{
			Identity: e.name, Role: p.Role, Host: p.Host, Parallel: p.Parallel, Since: e.stat.Ctime,
		})
	}
	slices.SortFunc(s.Processes, func(a, b view.Process) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Identity, b.Identity))
	})
	seats, err := r.readChildren(ctx, znode.Seats(q.Root, g))
	var least int32
	for _, e := range seats {
		n, bad := znode.SeatNumber(e.name)
		seat, damaged := znode.Decode[znode.QueueSeat](e.body)
		if identity := byNonce[seat.Nonce]; bad == nil && damaged == nil && identity != "" {
			i := slices.IndexFunc(s.Processes, func(p view.Process) bool { return p.Identity == identity })
			s.Processes[i].Seat = strconv.FormatInt(e.stat.Czxid, 16)
			if s.First == "" || n-least < 0 { // overflows as the numbers do
				s.First, least = identity, n
			}
		}
	}
	return err
}

func batchOf(id string, m znode.BatchManifest) view.Batch {
	return view.Batch{
		ID: id, State: string(m.State), Tasks: m.Tasks, Bytes: m.Bytes, Weight: m.Weight, Results: m.Results, By: m.By,
		Since: m.Since,
	}
}

// BatchDetail is an unfinished batch of generation g of q, as ZooKeeper has it.
func BatchDetail(q queue.Queue, g, id string, m znode.BatchManifest) *view.BatchDetail {
	return &view.BatchDetail{
		BatchRow: view.BatchRow{Batch: batchOf(id, m)}, Queue: q.Path(), SHA256: m.SHA256, Generation: g,
		TaskTimeout: cmp.Or(m.TaskTimeout, q.TaskTimeout).String(),
	}
}

// EndedDetail is a batch that has ended.
func EndedDetail(q queue.Queue, g, id string, end znode.BatchEnd) *view.BatchDetail {
	d := BatchDetail(q, g, id, end.BatchManifest)
	d.State, d.How, d.EndedBy, d.Ended = "ended", string(end.How), end.EndedBy, end.Ended
	d.BatchCounts = &view.BatchCounts{Done: end.Done, Dead: end.Dead, Attempts: cmp.Or(end.Attempts, q.Attempts)}
	return d
}

// Batch reads a batch of the queue that has this Record, also one that has ended lately; nil: there is none.
func (r *Reader) Batch(ctx context.Context, rec *resource.Record, id string) (*view.BatchDetail, error) {
	q, g := queue.Of(rec), rec.Generation
	body, _, there, err := zkconn.IfThere(r.source.Get(ctx, znode.Batch(q.Root, g, id)))
	if err != nil {
		return nil, err
	}
	if there {
		m, err := znode.Decode[znode.BatchManifest](body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", znode.Batch(q.Root, g, id), err)
		}
		return BatchDetail(q, g, id, m), nil
	}
	end, err := EndedBatch(ctx, r.source, q.Root, g, id)
	if err != nil || end == nil {
		return nil, err
	}
	return EndedDetail(q, g, id, *end), nil
}

// EndedBatch says how a batch ended; nil if none of this name has, or if it is forgotten.
func EndedBatch(ctx context.Context, s Source, root, g, id string) (*znode.BatchEnd, error) {
	dir := znode.EndedDays(root, g)
	days, _, err := s.Children(ctx, dir)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	for _, day := range slices.Backward(days) { // they are sorted: the newest first
		body, _, err := s.Get(ctx, resource.Join(dir, day, id))
		switch {
		case errors.Is(err, zkconn.ErrNoNode):
			continue
		case err != nil:
			return nil, err
		}
		b, err := znode.Decode[znode.BatchEnd](body)
		if err != nil {
			return nil, fmt.Errorf("ended batch %s: %w", id, err)
		}
		return &b, nil
	}
	return nil, nil
}
