package queue_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/queue"
)

func valid(edits ...func(*queue.Queue)) queue.Queue {
	q := queue.Default()
	q.Name, q.Redis = "primes", "redis://redis-1:6379/0"
	for _, edit := range edits {
		edit(&q)
	}
	return q
}

func TestCheckNamesTheValue(t *testing.T) {
	if err := valid().Check(); err != nil {
		t.Errorf("a valid queue: %v", err)
	}
	for field, edit := range map[string]func(*queue.Queue){
		"name":           func(q *queue.Queue) { q.Name = "" },
		"root":           func(q *queue.Queue) { q.Root = "/" },
		"redis":          func(q *queue.Queue) { q.Redis = "" },
		"attempts":       func(q *queue.Queue) { q.Attempts = 0 },
		"backoff":        func(q *queue.Queue) { q.Backoff = -1 },
		"task_timeout":   func(q *queue.Queue) { q.TaskTimeout = -1 },
		"max_task":       func(q *queue.Queue) { q.MaxTask = 1 },
		"max_bytes":      func(q *queue.Queue) { q.MaxTask, q.MaxBytes = 4<<20, 2<<20 },
		"keep_dead":      func(q *queue.Queue) { q.KeepDead = -1 },
		"timeouts.drain": func(q *queue.Queue) { q.Timeouts.Drain = -1 },
	} {
		if err := valid(edit).Check(); err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: error = %v", field, err)
		}
	}
}

// TestJSON: what is written is read back; what is absent has its default, but for the Redis, which is required.
func TestJSON(t *testing.T) {
	q := valid(func(q *queue.Queue) {
		q.Backoff, q.MaxTask = 0, 1<<20
		q.Labels = map[string]string{"team": "maths"}
	})
	body, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"primes","root":"/muster","redis":"redis://redis-1:6379/0","attempts":3,"backoff":"0s",` +
		`"task_timeout":"10m","max_task":"1MiB","max_bytes":"1GiB","keep_dead":"168h",` +
		`"timeouts":{"session":"10s","join":"1m40s","drain":"30s","stale":"30s"},"lifecycle":{"protect":false},` +
		`"labels":{"team":"maths"}}`
	if d := cmp.Diff(want, string(body)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	back, err := queue.Kind().Decode(body, "")
	if d := cmp.Diff(resource.Declaration(q), back); err != nil || d != "" {
		t.Errorf("read back: %v (-written +read):\n%s", err, d)
	}
	less, err := queue.Kind().Decode([]byte(`{"name":"primes","root":"/muster","redis":"redis://redis-1"}`), "")
	if err != nil || len(resource.Changes(valid(), less)) > 0 {
		t.Errorf("a short record: %v, %v", err, resource.Changes(valid(), less))
	}
	if _, err := queue.Kind().Decode([]byte(`{"name":"primes","root":"/muster"}`), ""); err == nil {
		t.Error("a record without a Redis is read")
	}
}

func TestChanges(t *testing.T) {
	other := valid(func(q *queue.Queue) {
		q.Redis, q.MaxBytes, q.Address, q.At = "redis://other", 2<<30, "queue.other", "queues.hcl:3"
	})
	var got []string
	for _, c := range resource.Changes(valid(), other) {
		got = append(got, c.Name+" "+*c.Old+" -> "+*c.New)
		if c.Immutable != (c.Name == "redis") {
			t.Errorf("%s is immutable: %v", c.Name, c.Immutable)
		}
	}
	want := []string{"redis redis://redis-1:6379/0 -> redis://other:6379/0", "max_bytes 1GiB -> 2GiB"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	same := valid(func(q *queue.Queue) { q.Redis = "redis://Redis-1" })
	if cs := resource.Changes(valid(), same); len(cs) > 0 {
		t.Errorf("another spelling is another Redis: %+v", cs)
	}
}

func TestRedis(t *testing.T) {
	for text, want := range map[string]string{
		"redis://redis-1":                                 "redis://redis-1:6379/0",
		"redis://redis-1/":                                "redis://redis-1:6379/0",
		"redis://10.0.0.7:7000/12":                        "redis://10.0.0.7:7000/12",
		"redis://[::1]:7000":                              "redis://[::1]:7000/0",
		"redis://[::1]/3":                                 "redis://[::1]:6379/3",
		"rediss://Redis.Example.com:6380/1":               "rediss://redis.example.com:6380/1",
		"redis+sentinel://b:26380,a,b:26380/mymaster":     "redis+sentinel://a:26379,b:26380/mymaster/0",
		"redis+sentinel://[::1]:26379,s_2/primes.main/15": "redis+sentinel://[::1]:26379,s_2:26379/primes.main/15",
	} {
		r, err := queue.ParseRedis(text)
		if err != nil || r.String() != want {
			t.Errorf("%s is %s, %v; want %s", text, r, err, want)
		}
		if again, err := queue.ParseRedis(want); err != nil || again.String() != want || !slices.Equal(r.Hosts, again.Hosts) {
			t.Errorf("%s is read back as %v, %v", want, again, err)
		}
	}
	for _, text := range []string{
		"", "redis-1:6379", "localhost", "http://redis-1", "redis://", "redis:///0", "redis://:6379", "redis://a:0",
		"redis://a:65536", "redis://a:06379", "redis://a:6379/x", "redis://a/-1", "redis://a/10000", "redis://a/0/0",
		"redis://a,b", "redis://a b", "REDIS://a", "redis+sentinel://a",
		"redis+sentinel://a/", "redis+sentinel:///mymaster", "redis+sentinel://a,,b/m", "redis+sentinel://a/m/x",
		"redis+sentinel://a/.m", "unix:///run/redis.sock", "redis://g::1", "redis://" + strings.Repeat("a", 2000),
	} {
		if r, err := queue.ParseRedis(text); err == nil || errors.Is(err, queue.ErrCredentials) {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
}

// TestNoCredentialsInTheAddress: they are refused, the message names the variables, and does not repeat the password.
func TestNoCredentialsInTheAddress(t *testing.T) {
	for text, env := range map[string]string{
		"redis://:geheim@redis-1":                         "MUSTER_REDIS_PASSWORD",
		"redis://ann:geheim@redis-1:6379/0":               "MUSTER_REDIS_PASSWORD",
		"redis://:ge/he?im#geheim@redis-1":                "MUSTER_REDIS_PASSWORD",
		"redis://:1geheim":                                "MUSTER_REDIS_PASSWORD",
		"redis-1:geheim@redis-1":                          "MUSTER_REDIS_PASSWORD",
		"redis://redis-1?password=geheim":                 "MUSTER_REDIS_PASSWORD",
		"redis://redis-1?auth=geheim":                     "MUSTER_REDIS_PASSWORD",
		"redis://redis-1/0#geheim":                        "MUSTER_REDIS_PASSWORD",
		"redis://redis-1:geheim":                          "MUSTER_REDIS_PASSWORD",
		"redis+sentinel://a:1,b:geheim/m":                 "MUSTER_REDIS_PASSWORD",
		"redis-1:6379,pwd=geheim":                         "MUSTER_REDIS_PASSWORD",
		"redis-1:geheim":                                  "MUSTER_REDIS_PASSWORD",
		"redis+sentinel://:geheim@a,b/m":                  "MUSTER_REDIS_PASSWORD",
		"http://:geheim@redis-1":                          "MUSTER_REDIS_PASSWORD",
		"redis://:geheim@" + strings.Repeat("long", 1000): "MUSTER_REDIS_PASSWORD",
		"redis://ann@redis-1":                             "MUSTER_REDIS_USERNAME",
	} {
		err := valid(func(q *queue.Queue) { q.Redis = text }).Check()
		if !errors.Is(err, queue.ErrCredentials) || !strings.Contains(err.Error(), env) ||
			strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestStatus(t *testing.T) {
	rec := resource.Record{State: resource.StateOpen}
	if err := rec.Declare(valid()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		live   int
		found  queue.Found
		class  resource.Class
		status resource.Status
		health string
	}{
		{0, queue.Found{}, resource.Idle, resource.StatusReady, "0 executors, 0 watchers, 0 unfinished batches"},
		{0, queue.Found{Batches: 1}, resource.Idle, resource.StatusReady, "0 executors, 0 watchers, 1 unfinished batch"},
		{
			0, queue.Found{Batches: 2, Waiting: 1}, resource.Idle, queue.Degraded,
			"0 executors, 0 watchers, 2 unfinished batches; 1 batch waits and no process is live",
		},
		{
			1, queue.Found{Watchers: 1, Batches: 2, Waiting: 2}, resource.Degraded, queue.Degraded,
			"0 executors, 1 watcher, 2 unfinished batches; 2 batches wait and nobody executes",
		},
		{
			3, queue.Found{Executors: 3, Batches: 9, Completed: 1}, resource.Degraded, queue.Degraded,
			"3 executors, 0 watchers, 9 unfinished batches; 1 batch is completed and nobody watches",
		},
		{
			3, queue.Found{Executors: 2, Watchers: 1, Batches: 9, Lost: 2, Refused: true}, resource.Degraded, queue.Degraded,
			"2 executors, 1 watcher, 9 unfinished batches; Redis lost 2 batches; Redis refuses what it is asked",
		},
		{
			2, queue.Found{Executors: 1, Watchers: 1, Batches: 1, Failed: 1}, resource.Degraded, queue.Degraded,
			"1 executor, 1 watcher, 1 unfinished batch; watchers failed with 1 batch for the last time",
		},
		{
			3, queue.Found{Executors: 2, Watchers: 1, Batches: 9}, resource.Live, queue.Running,
			"2 executors, 1 watcher, 9 unfinished batches",
		},
	} {
		o := &resource.Observed{Record: &rec, Live: c.live, Counts: c.found.Counts()}
		if o.Class() != c.class || o.Status() != c.status || valid().Health(o) != c.health {
			t.Errorf("%d live, %+v: %v, %s, %s", c.live, c.found, o.Class(), o.Status(), valid().Health(o))
		}
		if got := queue.FoundOf(o); got != c.found {
			t.Errorf("counts of %+v are %+v", c.found, got)
		}
	}
	for want, o := range map[string]*resource.Observed{
		"1 watcher is live":                           {Live: 1, Counts: queue.Found{Watchers: 1}.Counts()},
		"2 executors are live":                        {Live: 2, Counts: queue.Found{Executors: 2}.Counts()},
		"1 executor, 1 watcher and 2 others are live": {Live: 4, Counts: queue.Found{Executors: 1, Watchers: 1}.Counts()},
		"1 executor and 1 watcher are live": {
			Live: 3, Counts: queue.Found{Executors: 1, Watchers: 1}.Counts(), Strangers: []string{"x"},
		},
		"nobody is live": {},
	} {
		if got := valid().LiveText(o); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestBatches(t *testing.T) {
	for id, want := range map[string]bool{
		"b1": true, strings.Repeat("n", 64): true, strings.Repeat("n", 65): false, "": false, "a/b": false, ".x": false,
	} {
		if err := queue.CheckBatchID(id); (err == nil) != want {
			t.Errorf("batch %q: %v", id, err)
		}
	}
	for text, keep := range map[queue.Results]time.Duration{
		"watcher": 0, "submitter": 0, "discard": 0, "keep:24h": 24 * time.Hour, "keep:720h": 720 * time.Hour,
		"keep": -1, "keep:": -1, "keep:0s": -1, "keep:-1h": -1, "keep:721h": -1, "": -1, "Watcher": -1, "keep:1d": -1,
	} {
		d, _ := text.Keep()
		if err := text.Check(); (err == nil) != (keep >= 0) || d != max(0, keep) {
			t.Errorf("%q: %v, kept for %s", text, err, d)
		}
	}
}

// TestPropertiesAreConsistent: every default can be parsed and is within the limits, and everything has documentation.
func TestPropertiesAreConsistent(t *testing.T) {
	q := valid()
	if err := resource.Check(queue.Properties(), &q); err != nil {
		t.Error(err)
	}
	for _, p := range queue.Properties() {
		if p.Doc == "" || p.Limits() == "" || p.Required != (p.Name == "redis") || p.Text(&q) == "" {
			t.Errorf("%s: %+v", p.Name, p)
		}
	}
}
