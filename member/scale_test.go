package member_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/group"
	"muster/member"
	"muster/resource"
)

// BenchmarkThousandDuties gives 1,000 duties to 100 members, all in this process. It measures the time from the end of
// settle until the assigner has written all seats, and until all duties are held; then the leader of some is killed.
// moved-ratio is how many duties changed their seat over those that the dead member had: 1 is the least.
func BenchmarkThousandDuties(b *testing.B) {
	const members, duties, settle = 100, 1000, 10 * time.Second
	for range b.N {
		var names []string
		for i := range duties {
			names = append(names, fmt.Sprintf("duty-%04d", i))
		}
		f := newFixture(b)
		f.change(func(g *group.Group) {
			g.Settle = resource.Duration(settle) // so that all have joined before anything is given
			for _, name := range names {
				d := group.NewDuty(group.Cron, name)
				d.Schedule = "@daily"
				g.Add(d)
			}
		})
		all := make([]*member.Member, members)
		first := time.Now()
		var joining errgroup.Group
		joining.SetLimit(10)
		for i := range all {
			s := dial(b)
			joining.Go(func() (err error) {
				all[i], err = member.Join(b.Context(), s, f.config(fmt.Sprintf("m-%03d", i), "1.0", names...))
				return err
			})
		}
		if err := joining.Wait(); err != nil {
			b.Fatal(err)
		}
		joined := time.Since(first)
		b.ReportMetric(joined.Seconds(), "join-s")
		for _, m := range all {
			b.Cleanup(func() { m.Leave() })
			for _, name := range names {
				go func() {
					for {
						if _, err := m.Take(b.Context(), name); err != nil {
							return
						}
					}
				}()
			}
		}
		given := func() (n int) {
			for _, has := range f.seats() {
				n += len(has)
			}
			return n
		}
		f.until("the roster to begin", func() bool { return given() > 0 })
		begun := time.Now()
		f.until("all to be given", func() bool { return given() == duties })
		b.ReportMetric(time.Since(begun).Seconds(), "given-s")
		f.until("all to be held", func() bool { return group.Held(f.look()) == duties })
		b.ReportMetric(time.Since(begun).Seconds(), "held-s")

		before := f.seats()
		dead := all[members/2]
		if err := dead.Leave(); err != nil {
			b.Fatal(err)
		}
		f.until("all to be given again", func() bool { return given() == duties })
		moved := 0
		for identity, has := range f.seats() {
			had := map[string]bool{}
			for _, d := range before[identity] {
				had[d] = true
			}
			for _, d := range has {
				if !had[d] {
					moved++
				}
			}
		}
		b.ReportMetric(float64(moved)/float64(len(before[dead.Identity])), "moved-ratio")
	}
}
