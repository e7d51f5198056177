package spec_test

import (
	"testing"

	"muster/resource/queue"
	"muster/spec"
)

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
