package wrap

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestTheSessionHasTheTimeoutOfTheRecord, also of one that is written while the worker waits for its job.
func TestTheSessionHasTheTimeoutOfTheRecord(t *testing.T) {
	for name, early := range map[string]bool{"the_job_is_there": true, "the_job_comes_later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTestJob(t, 0)
			f.job.Timeouts.Session = resource.Duration(7 * time.Second)
			if early {
				f.create()
			}
			var timeouts []time.Duration
			w := startWorker(f, "w0", "obeys:0", func(c *Config) {
				c.SessionTimeout = 11 * time.Second
				c.Connect = func(ctx context.Context, timeout time.Duration) (*zkconn.Session, error) {
					timeouts = append(timeouts, timeout)
					return dial(ctx, timeout, servers.Addrs()...)
				}
			})
			if !early {
				<-w.waiting
				f.create()
			}
			<-w.joined
			if d := cmp.Diff([]time.Duration{11 * time.Second, 7 * time.Second}, timeouts); d != "" {
				t.Errorf("timeouts of the sessions (-want +got):\n%s", d)
			}
			if o := f.look(); o.Live != 1 {
				t.Errorf("%d are live", o.Live)
			}
		})
	}
}

// TestAWorkerWithoutAnAddress waits until it can find one, and is known by it.
func TestAWorkerWithoutAnAddress(t *testing.T) {
	f := newTestJob(t, 1)
	refusals, unstable := 1, make(chan string, 1)
	w := startWorker(f, "", "environ obeys:0", func(c *Config) {
		c.Worker.Info = znode.Worker{}
		c.Unstable = func(identity string) { unstable <- identity }
		c.LocalIP = func(context.Context) (net.IP, error) {
			if refusals--; refusals >= 0 {
				return nil, fmt.Errorf("%w: not yet", zkconn.ErrUnreachable)
			}
			return net.IPv4(127, 0, 0, 1), nil
		}
	})
	if what := <-w.waiting; what != "ZooKeeper (1m40s at most): zookeeper is unreachable: not yet" {
		t.Errorf("it waits for %s", what)
	}
	identity := <-unstable
	live, err := w.client().Members(t.Context(), true)
	if err != nil || len(live.Members) != 1 {
		t.Fatalf("%+v, %v", live, err)
	}
	if m := live.Members[0]; m.Identity != identity || m.Address() != identity || m.IP != "127.0.0.1" {
		t.Errorf("its identity is %s, and it is live as %+v", identity, m)
	}
}
