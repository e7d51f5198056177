package store

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/store/lua"
)

func always(ms float64) func(int) float64 { return func(int) float64 { return ms } }

// deathCases are what the rule of charges has to be right in.
func deathCases() map[string]deathCase {
	four := deathCase{
		executors: 4, parallel: 2, tasks: 300, poison: 10, attempts: 3, lookahead: 100, lasts: always(50), session: 10_000,
		limit: 5 * time.Minute,
	}
	all := map[string]deathCase{"four": four}
	add := func(name string, edit func(c *deathCase)) {
		c := four
		edit(&c)
		all[name] = c
	}
	add("lines", func(c *deathCase) { c.lasts, c.lookahead = always(1), 200 })
	add("parallel 1", func(c *deathCase) { c.parallel = 1 })
	add("parallel 8", func(c *deathCase) { c.parallel = 8 })
	add("one", func(c *deathCase) { c.executors, c.limit = 1, 15*time.Minute })
	add("two", func(c *deathCase) { c.executors, c.limit = 2, 10*time.Minute })
	add("their own names", func(c *deathCase) { c.waits, c.limit = true, 10*time.Minute })
	add("30 percent", func(c *deathCase) { c.poison, c.limit = 90, 30*time.Minute })
	add("many", func(c *deathCase) { c.executors, c.tasks, c.parallel = 100, 1000, 8 })

	add("poison to the end", func(c *deathCase) {
		c.executors, c.parallel, c.tasks, c.poison, c.limit = 8, 8, 4000, 40, time.Hour
		c.lasts = func(i int) float64 { return float64(400 + i*37%10*150) }
	})

	// Ten minutes each, and one attempt: who is charged is dead.
	long := four
	long.executors, long.parallel, long.attempts, long.lasts = 20, 4, 1, always(600_000)
	long.tasks, long.poison, long.limit = 80, 0, 4*time.Hour
	strikes := func(share float64, n int) (all []outage) {
		for i := range n {
			all = append(all, outage{100_000 * float64(i+1), share, 20_000})
		}
		return all
	}
	once, often, rack := long, long, long
	once.outages, once.limit = strikes(1, 1), 15*time.Minute
	often.outages = strikes(1, 6)
	rack.outages, rack.limit = strikes(0.5, 2), 3*time.Hour
	all["outage"], all["outages"], all["rack, twice"] = once, often, rack
	slow := long
	slow.tasks, slow.outages = 2000, strikes(1, 9)
	slow.lasts = func(i int) float64 {
		if i == 40 {
			return 600_000
		}
		return 10_000
	}
	all["one slow"] = slow
	return all
}

// TestDeathsOnTheModel: each case, with many seeds.
func TestDeathsOnTheModel(t *testing.T) {
	t.Parallel()
	seeds := uint64(3)
	if os.Getenv("MUSTER_SOAK") == "1" {
		seeds = 100
	}
	for name, c := range deathCases() {
		t.Run(name, func(t *testing.T) {
			longest, deaths := time.Duration(0), 0
			for seed := range seeds {
				q := &testQueue{Queue: New(nil, t.Name(), "queue-1"), t: t, now: time.UnixMilli(1_000_000)}
				q.scripts = loadScripts(testClock)
				q.Queue, _ = q.onModel()
				w, err := c.run(q, func(now time.Time) { q.now = now }, seed)
				if err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				longest, deaths = max(longest, millis(w.took)), deaths+w.deaths
			}
			t.Logf("after %s at most; %d deaths in %d schedules", longest.Round(time.Second), deaths, seeds)
		})
	}
}

// TestMutantsOfTheRule: with each part of the rule left out of the scripts, a case goes wrong.
func TestMutantsOfTheRule(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct{ in, was, is string }{
		"":                             {"four", "", ""},
		"a suspect beside others":      {"poison to the end", "hand.held + #hand.put == 0", "true"},
		"others beside a suspect":      {"poison to the end", "if not hand.suspect then take_all", "if true then take_all"},
		"no suspicion in an outage":    {"four", "how ~= '0' and deaths < SUSPECT", "how == '2' and deaths < SUSPECT"},
		"all executors have a suspect": {"outages", "2 * trying < executors", "true"},
		"charged beside many":          {"outages", "how == '2' and f == suspect", "how ~= '0' and f == suspect"},
		"charged beside none":          {"outages", "with > 2 * without", "with > 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var wrong error
			for seed := range uint64(5) {
				if wrong != nil {
					break
				}
				q := newQueue(t)
				q.prefix = fmt.Sprintf("muster:{%s %d}:", t.Name(), seed)
				q.scripts = scripts{}
				for script, text := range lua.Scripts(testClock) {
					q.scripts[script] = redis.NewScript(strings.ReplaceAll(text, m.was, m.is))
				}
				q.at(q.now)
				_, wrong = deathCases()[m.in].run(q, q.at, seed)
			}
			if (wrong != nil) != (name != "") {
				t.Errorf("wrong: %v", wrong)
			}
			t.Log(wrong)
		})
	}
}
