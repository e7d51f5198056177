package peers

import "testing"

// TestBesideTheFloor is the short form of BenchmarkSideBySide: muster's sides and the floor. The limits leave room for
// a busy machine. An executor that waited for the clock between its turns would not keep them.
func TestBesideTheFloor(t *testing.T) {
	const (
		number    = 20_000
		executors = 2
		attempts  = 3
		slowest   = 1. / 40 // of the floor's rate
		most      = 40      // bytes for a waiting task, beside its payload; Redis 8 takes 37, Redis 7 less than 32
	)
	for _, prepare := range []func(dir string) (side, error){musterGo, musterLines} {
		s, err := prepare(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Run(s.name, func(t *testing.T) {
			for i := range attempts {
				least := run(t, rediss.Addr(), floor(), executors, number)
				o := run(t, rediss.Addr(), s, executors, number)
				t.Logf("%.0f tasks a second, %.3f of the floor's; %.1f bytes a waiting task, floor %.1f",
					o.rate, o.rate/least.rate, o.bytes, least.bytes)
				switch {
				case o.bytes > most:
					t.Fatalf("a waiting task takes %.1f bytes beside its payload, more than %d", o.bytes, most)
				case o.rate >= least.rate*slowest:
					return
				case i == attempts-1:
					t.Errorf("%d times slower than %.3f of the floor", attempts, slowest)
				}
			}
		})
	}
}
