package spec_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/queue"
	"muster/spec"
)

// allOfAQueue uses each argument of a queue once.
const allOfAQueue = head + `
defaults {
  root     = "/queues"
  max_task = "1MiB"
  labels   = { team = "maths" }
}

queue "primes" {
  for_each     = { eu = "redis://redis-eu", us = "rediss://redis-us:6380/2" }
  name         = "primes-${each.key}"
  redis        = each.value
  attempts     = 5
  backoff      = "0s"
  task_timeout = "1m"
  max_bytes    = "2GiB"
  keep_dead    = "24h"
  timeouts {
    session = "20s"
    join    = "5m"
    drain   = "1m"
    stale   = "90s"
  }
  lifecycle {
    protect = true
  }
  labels = { region = each.key }
  precondition {
    condition     = length(each.key) == 2
    error_message = "A region has two letters."
  }
}
`

func TestEverythingOfAQueue(t *testing.T) {
	c := load(t, map[string]string{"queues.hcl": allOfAQueue}, spec.Options{})
	want := func(region, redis string) queue.Queue {
		second := func(n int) resource.Duration { return resource.Duration(n) * resource.Duration(time.Second) }
		return queue.Queue{
			Common: resource.Common{
				Name: "primes-" + region, Root: "/queues", Address: `queue.primes["` + region + `"]`, At: "queues.hcl:11",
			},
			Redis: redis, Attempts: 5, TaskTimeout: second(60), MaxTask: 1 << 20, MaxBytes: 2 << 30,
			KeepDead: second(86400),
			InPlace: resource.InPlace{
				Timeouts:  resource.Timeouts{Session: second(20), Join: second(300), Drain: second(60), Stale: second(90)},
				Lifecycle: resource.Lifecycle{Protect: true},
				Labelled:  resource.Labelled{Labels: map[string]string{"team": "maths", "region": region}},
			},
		}
	}
	queues := []queue.Queue{want("eu", "redis://redis-eu"), want("us", "rediss://redis-us:6380/2")}
	if d := cmp.Diff(queues, spec.Of[queue.Queue](c)); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
	for field, where := range map[string]string{
		"max_task": "defaults at queues.hcl:7", "redis": "queues.hcl:14", "timeouts.drain": "queues.hcl:23",
		"labels.team": "defaults at queues.hcl:8",
	} {
		if got := c.Origins[`queue.primes["eu"]`][field]; got != where {
			t.Errorf("%s is from %q, want %q", field, got, where)
		}
	}
	for _, f := range spec.Of[queue.Queue](c)[0].Fields() {
		if c.Origins[spec.Of[queue.Queue](c)[0].Address][f.Name] == "" {
			t.Errorf("%s has no origin", f.Name)
		}
	}
}

// TestQueueInJSON: the JSON syntax declares the same queue.
func TestQueueInJSON(t *testing.T) {
	native := load(t, map[string]string{"a.hcl": head + `
queue "primes" {
  redis    = "redis://redis-1"
  max_task = "1024KiB"
}
`}, spec.Options{})
	json := load(t, map[string]string{"a.hcl.json": `{
  "muster": { "stack": "etl" }, "queue": { "primes": { "redis": "redis://redis-1", "max_task": "1MiB" } }
}`}, spec.Options{})
	none := load(t, map[string]string{"a.hcl": head}, spec.Options{})
	if native.Digest != json.Digest || native.Digest == none.Digest {
		t.Errorf("native %+v\nJSON %+v", spec.Of[queue.Queue](native), spec.Of[queue.Queue](json))
	}
}
