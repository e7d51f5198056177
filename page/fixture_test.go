package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/apply/history"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// epoch is the time of the boards of tests.
func epoch() time.Time { return time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC) }

// ago is so long before epoch.
func ago(d time.Duration) time.Time { return epoch().Add(-d) }

func record(d resource.Declaration) *resource.Record {
	return &resource.Record{
		Declaration: d, Stack: "etl-prod", Generation: "4f1c2a9be0d7", State: resource.StateOpen, By: "deploy@ci-7",
		Applied: ago(26 * time.Hour).Format(time.RFC3339),
	}
}

// aJob is a job of n workers, of which so many have joined, are live, and are done.
func aJob(name string, n, joined, live, done int) view.Resource {
	j := job.Default()
	j.Name, j.Root, j.Workers, j.Address = name, "/jobs/prod", n, "job."+name
	j.Labels = map[string]string{"team": "data", "tier": "1"}
	return view.Resource{Path: j.Path(), Observed: resource.Observed{
		Record: record(j), Live: live, Counts: job.Counts(joined, done), Created: ago(50 * time.Hour),
	}}
}

// with changes what was observed of a job.
func with(j view.Resource, change func(o *resource.Observed)) view.Resource {
	change(&j.Observed)
	return j
}

func aGroup(name string, live, held int) view.Resource {
	g := group.Default()
	g.Name, g.Root, g.Address = name, "/jobs/prod", "group."+name
	duties := []group.Duty{
		{Name: "compactor", Type: group.Leader},
		{Name: "nightly-report", Type: group.Cron, Schedule: "0 2 * * *", AlertAfter: 1},
		{Name: "reaper", Type: group.Leader}, {Name: "sync-prices", Type: group.Cron, Schedule: "*/5 * * * *"},
	}
	for _, d := range duties {
		g.Add(d)
	}
	report := resource.Results{
		Section: "cron.nightly-report", Done: 40, Failed: 3, InARow: 2, LastSuccess: ago(50 * time.Hour),
	}
	o := resource.Observed{
		Record: record(g), Live: live, Counts: group.Counts(held, 0, 0), Results: []resource.Results{report},
	}
	o.Created = ago(400 * time.Hour)
	since := ago(3 * time.Hour)
	next, tick := epoch().Add(24*time.Hour), ago(0)
	started, ended, one := ago(-time.Second), ago(-71*time.Second), 1
	detail := &view.Group{
		Assigner: "api-1", Waiting: 1,
		Members: []view.Member{
			{Identity: "api-1", Version: "1.4.0", Address: "10.0.3.11:7000", Since: since, Ready: true, Seat: "s-1",
				Duties: []string{"compactor", "nightly-report"}},
			{Identity: "api-2", Version: "1.4.0", Address: "10.0.3.12:7000", Since: since, Seat: "s-2"},
			{Identity: "api-0", Version: "1.3.9", Address: "10.0.3.10:7000", Since: ago(72 * time.Hour), Ready: true,
				Seat: "s-0", Duties: []string{"sync-prices"}},
		},
		Duties: []view.Duty{
			{Name: "compactor", Type: group.Leader, Holder: "api-1", Version: "1.4.0", Address: "10.0.3.11:7000",
				Since: &since, Epoch: 12, Given: "api-1", Why: "the newest version that fits, and fewest duties"},
			{Name: "nightly-report", Type: group.Cron, Holder: "api-1", Version: "1.4.0", Since: &since, Epoch: 9,
				Given: "api-1", Why: "pinned", Pinned: "api-1", NextTick: &next, Declared: duties[1],
				Failing: true, Results: &report,
				Runs: append([]view.Run{
					{Tick: &tick, State: "running", By: "api-1", Started: &started, Attempt: 1},
					{Asked: 3, State: "failed", By: "api-1", Started: &started, Ended: &ended, Exit: &one, Because: "timeout",
						Attempt: 3, Output: "<b>reading\x1b[0m\n\x1b]0;x\a\ttotal\u202e\nno disk\r\n"},
				}, oldRuns(20)...)},
			{Name: "reaper", Type: group.Leader, Why: "no member lists it", Failures: []view.Failure{
				{Identity: "api-2", Count: 3, Until: next, Because: "it exited with 1"}}},
			{Name: "sync-prices", Type: group.Cron, Holder: "api-0", Version: "1.3.9", Since: &since, Epoch: 2,
				Given: "api-1", Why: "a newer version has joined", PausedBy: "ann@laptop", Declared: duties[3]},
		},
		Requests: []view.Request{{Duty: "compactor", What: "handover", To: "api-2", By: "ann@laptop", Since: since}},
	}
	if live == 0 {
		detail = &view.Group{Duties: []view.Duty{{Name: "compactor", Type: group.Leader}}}
	}
	return view.Resource{Path: g.Path(), Observed: o, Group: detail}
}

// oldRuns are n runs of every state, one a day.
func oldRuns(n int) []view.Run {
	states := []string{"done", "done", "failed", "lost", "missed", "skipped", "waiting", "asked", "unreadable",
		"done", "?"}
	var all []view.Run
	for i := range n {
		day := time.Duration(i+1) * 24 * time.Hour
		r := view.Run{Tick: new(ago(day)), State: states[i%len(states)]}
		switch r.State {
		case "done", "failed":
			r.By, r.Started, r.Ended, r.Exit = "api-1", new(ago(day)), new(ago(day-time.Minute)), new(0)
			if r.State == "failed" {
				r.Exit = new(3)
			}
			if r.LeftOut = i > 15; !r.LeftOut {
				r.Output = "first\nlast\n"
			}
		case "missed", "skipped":
			r.Count, r.More = i, i > 10
		}
		all = append(all, r)
	}
	return all
}

func aQueue(name string, f queue.Found, live int, d view.Queue) view.Resource {
	q := queue.Default()
	q.Name, q.Root, q.Address, q.Redis = name, "/jobs/prod", "queue."+name, "redis-1:6379/0"
	o := resource.Observed{Record: record(q), Live: live, Counts: f.Counts(), Created: ago(90 * time.Hour)}
	return view.Resource{Path: q.Path(), Observed: o, Queue: &d}
}

func processes() []view.Process {
	return []view.Process{
		{Identity: "exec-a1", Role: queue.Executor, Host: "node-4", Parallel: 8, Since: ago(time.Hour)},
		{Identity: "exec-a2", Role: queue.Executor, Host: "node-5", Parallel: 8, Since: ago(40 * time.Minute)},
		{Identity: "watch-1", Role: queue.Watcher, Host: "node-1", Since: ago(time.Hour)},
	}
}

// sample is a board with one of everything.
func sample() *Board {
	degraded := queue.Found{Executors: 2, Watchers: 1, Batches: 4, Lost: 1, Failed: 1}
	all := []view.Resource{
		aJob("archive", 8, 8, 0, 8), aJob("backfill-2026-06", 64, 64, 61, 0), aJob("etl-a", 8, 8, 8, 0),
		aJob("etl-b", 8, 5, 5, 0), aJob("ingest-eu", 4, 0, 0, 0), aJob("rebuild", 16, 16, 0, 3),
		aJob("train", 2000, 2000, 1940, 40),
		with(aJob("old-thing", 4, 4, 4, 0), func(o *resource.Observed) { o.Lost = []resource.Part{resource.PartRecord} }),
		with(aJob("secret", 4, 0, 0, 0), func(o *resource.Observed) { o.Record, o.Problem = nil, "no permission" }),
		with(aJob("stop-me", 4, 4, 2, 0), func(o *resource.Observed) { o.Record.State = resource.StateTerminating }),
		with(aJob("unknown-thing", 4, 0, 0, 0), func(o *resource.Observed) {
			o.Record, o.Foreign, o.Problem = nil, true, "its data is 14 bytes of text"
		}),
		with(aJob("classic-one", 4, 4, 4, 0), func(o *resource.Observed) { o.Record, o.Classic = nil, true }),
		with(aJob("nightly", 4, 0, 0, 0), func(o *resource.Observed) {
			run := job.Run{ID: "nightly/12", Generation: "g", Completed: ago(3 * time.Hour).Format(time.RFC3339)}
			if err := job.SetLastRun(o.Record, run); err != nil {
				panic(err)
			}
		}),
		aGroup("api", 3, 3), aGroup("spare", 0, 0),
		aQueue("primes", degraded, 3, view.Queue{
			First: "exec-a1", Processes: processes(), Lost: []string{"b-77"}, Failed: []string{"nightly-6"},
			Batches: []view.Batch{{ID: "nightly-7", State: "open", Tasks: 12000, Bytes: 3 << 20, Weight: 1,
				Results: "discard", By: "cron@host-1", Since: ago(20 * time.Minute)}},
		}),
		aQueue("mail", queue.Found{Executors: 1, Watchers: 1}, 2, view.Queue{}),
	}
	slices.SortFunc(all, func(a, b view.Resource) int { return strings.Compare(a.Path, b.Path) })
	return &Board{
		At: epoch(), Servers: "zk-1:2181,zk-2:2181,zk-3:2181", Connected: true, Roots: []string{"/jobs/prod"},
		Resources: all, History: applies(),
		Stacks: []Stack{
			{Name: "etl-prod", Roots: []string{"/jobs/prod"}, Last: &applies()[0]}, {Name: "web", Roots: []string{"/web"}},
		},
	}
}

func applies() []history.Found {
	found := func(stack, name string, state history.State, e history.Entry) history.Found {
		number, _ := znode.EntryNumber(name)
		return history.Found{Stack: stack, Name: name, Number: number, State: state, Entry: e}
	}
	return []history.Found{
		found("etl-prod", "h-0000000012", history.Finished, history.Entry{
			By: "deploy@ci-7", Plan: "9c1f", Saved: true, Started: ago(26 * time.Hour),
			Who:      history.Who{Actor: "ann", CI: "GitHub Actions", Commit: "4be71c0", URL: "https://ci.example/runs/118"},
			Finished: ago(26*time.Hour - 4*time.Second), Done: map[string]int{"create": 2, "update": 7, "delete": 1},
			Results: map[string]int{"applied": 10}, More: 8,
			Changes: []history.Change{
				{Action: "delete", Path: "/jobs/prod/tmp-backfill"}, {Action: "create", Path: `job.ingest["us"]`},
			},
		}),
		found("etl-prod", "h-0000000011", history.Unfinished, history.Entry{
			By: "deploy@ci-7", Plan: "77aa", Started: ago(50 * time.Hour), Planned: map[string]int{"create": 3, "delete": 1},
			Changes: []history.Change{{Action: "delete", Path: "/jobs/prod/old"}},
			Who:     history.Who{Actor: "deploy@ci-7", URL: "javascript:alert(1)"},
		}),
		{
			Stack: "web", Name: "h-0000000002", State: history.Damaged, Problem: "it does not say who",
			Entry: history.Entry{Started: ago(80 * time.Hour)},
		},
		found("web", "h-0000000001", history.Finished, history.Entry{
			By: "bob@laptop", Plan: "1", Started: ago(90 * time.Hour), Finished: ago(90*time.Hour - time.Minute),
			Who: history.Who{Actor: "bob@laptop"}, Done: map[string]int{"create": 3},
			Results: map[string]int{"applied": 3, "refused": 1},
		}),
	}
}

// workersOf are workers of a job of n: the ids in lost are lost, those below done are completed.
func workersOf(n, done int, lost ...int) []view.Worker {
	var all []view.Worker
	for id := range n {
		restarts := id % 3
		w := view.Worker{
			ID: id, Identity: fmt.Sprintf("worker-%d", id), Address: fmt.Sprintf("10.0.%d.%d:7000", id/250, id%250),
			State: view.Live, Restarts: &restarts, Since: ago(2 * time.Hour), Joined: ago(2 * time.Hour),
		}
		if id < 2 { // the others do not say where they are
			w.Rack, w.Datacenter, w.Ports = fmt.Sprint("r", id), "eu-1", map[string]int{"metrics": 9090}
		}
		switch {
		case slices.Contains(lost, id):
			w.State, w.LastExit, w.Since = view.Lost, "signal 9", ago(4*time.Minute)
		case id < done:
			w.State, w.LastExit = view.Completed, "0"
		}
		all = append(all, w)
	}
	return all
}

// lastHourOf are the charts of a job or a queue of which half an hour is known, but for three minutes.
func lastHourOf(r view.Resource) []chart {
	h := &lastHour{queues: map[string]*queueHour{}, jobs: map[string]*jobHour{r.Path: {}}}
	var ended int64
	for s := -30 * time.Minute; s <= 0; s += sampleEvery {
		at, away := epoch().Add(s), s > -10*time.Minute && s < -7*time.Minute
		ended += int64(600 + 120*(s/time.Minute%5))
		all := map[string]*QueueSample{r.Path: {At: at, Ended: ended, Dead: 32 + int64(s/time.Minute)}}
		if away {
			all[r.Path] = nil
		}
		h.tick(!away, all, at)
	}
	h.jobs[r.Path].note(slotOf(ago(20*time.Minute)), 64, 0)
	h.jobs[r.Path].note(slotOf(ago(4*time.Minute)), -3, 0)
	return h.charts(r.Path, &r.Observed, epoch())
}

// planned is a sample with what a plan would do: two jobs have more workers than before, one is missing, and one is
// declared where nothing is shown.
func planned(problem string) *Board {
	b := sample()
	want, state := plan.Want{Stack: "etl-prod"}, plan.State{Found: map[string]resource.Observed{}}
	for _, r := range b.Resources {
		state.Found[r.Path] = r.Observed
		if r.Observed.Record == nil || strings.HasSuffix(r.Path, "/archive") {
			continue
		}
		d := r.Observed.Record.Declaration
		if j, ok := d.(job.Job); ok && (j.Name == "etl-a" || j.Name == "ingest-eu") {
			j.Workers += 2
			d = j
		}
		want.Declared = append(want.Declared, d)
	}
	for _, root := range []string{"/jobs/prod", "/elsewhere"} {
		j := job.Default()
		j.Name, j.Root, j.Workers, j.Address, j.At = "new <b>", root, 4, "job.new", "jobs.hcl:4"
		want.Declared = append(want.Declared, j)
	}
	b.Planned = newPlanned(Configuration{Want: want, Problem: problem, Command: "muster plan"}, state)
	return b
}

// detail is what is known of a resource of sample.
func detail(b *Board, name string) *Detail {
	for _, j := range b.Resources {
		if j.Path != "/jobs/prod/"+name {
			continue
		}
		d := &Detail{Resource: j, charts: lastHourOf(j)}
		switch name {
		case "backfill-2026-06":
			d.Workers = workersOf(64, 0, 7, 31, 32)
			d.Barriers = []view.Barrier{{Name: "epoch", Round: 3, Attempt: 1, Workers: 64, Since: ago(5 * time.Minute),
				Arrived: make([]int, 61), Missing: []int{7, 31, 32}}}
		case "train":
			d.Workers = workersOf(2000, 40, 100, 101, 102, 103, 1500)
		case "primes":
			d.Batches = []BatchProgress{
				{BatchRow: view.BatchRow{Batch: j.Queue.Batches[0],
					BatchCounts: &view.BatchCounts{Waiting: 4100, InHand: 16, Done: 7852, Dead: 32}}, PerSecond: 41.5},
				{BatchRow: view.BatchRow{
					Batch: view.Batch{ID: "b-77", State: "lost", Tasks: 90, By: "ann@laptop", Since: ago(time.Hour)}}},
				{BatchRow: view.BatchRow{Batch: view.Batch{ID: "weekly", State: "completed", Tasks: 300, Results: "keep",
					By: "cron@host-1", Since: ago(9 * time.Hour)}, BatchCounts: &view.BatchCounts{Done: 300}}, Watcher: "watch-1"},
				{BatchRow: view.BatchRow{
					Batch:       view.Batch{ID: "slow", State: "open", Tasks: 5, By: "cron@host-1", Since: ago(9 * time.Hour)},
					BatchCounts: &view.BatchCounts{Done: 1, Waiting: 4, Because: "exit 3"}}, PerSecond: 0.01},
			}
			d.Hands = []Hand{{"exec-a1", "nightly-7", 8}, {"exec-a2", "nightly-7", 8}, {"exec-gone", "slow", 1}}
			d.Dead = []DeadTask{{Batch: "nightly-7", Index: 118, Attempt: 3, Deaths: 1, Died: ago(time.Minute),
				Reason: "exit 2: no such file", Payload: `{"n": 1000003}`}}
		}
		return d
	}
	return nil
}

// batchDetail is a batch of the queue of a sample.
func batchDetail(b *Board, id string) *Detail {
	d := detail(b, "primes")
	q := queue.Of(d.Observed.Record)
	m := znode.BatchManifest{Tasks: 12000, Bytes: 3 << 20, SHA256: "4be71c0", Weight: 1, Results: "discard",
		By: "cron@host-1", Since: ago(20 * time.Minute), State: znode.BatchOpen}
	switch id {
	case "nightly-7":
		d.Batch = zkstate.BatchDetail(q, "4f1c2a9be0d7", id, m)
	case "nightly-5":
		d.Batch = zkstate.EndedDetail(q, "4f1c2a9be0d7", id, znode.BatchEnd{BatchManifest: m, How: znode.EndCollected,
			Done: 11990, Dead: 10, EndedBy: "watch-1", Ended: ago(time.Minute)})
	}
	return d
}
