package cli

import (
	"context"

	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/zkstate"
)

// kinds lists the kinds of resources. A new kind adds a line.
func kinds() []zkstate.Kind {
	return []zkstate.Kind{
		zkstate.Job(),
		zkstate.Group(),
		zkstate.Queue(),
	}
}

// kinds are the kinds for what changes them: it also deletes what members of a deleted generation have left in Redis.
func (p *process) kinds() []zkstate.Kind {
	all := kinds()
	for i := range all {
		if all[i].Name == queue.KindName {
			all[i].Unlink = func(ctx context.Context, rec *resource.Record) error {
				return tasks.Unlink(ctx, rec, tasks.Access{Getenv: p.environ.value}, p.redisHosts)
			}
		}
	}
	return all
}

// redisHosts lists the hosts of the queues that are declared in a plan, as host:port.
func redisHosts(p plan.Plan) (hosts []string) {
	for _, r := range p.Rows {
		if q, ok := r.New.(queue.Queue); ok {
			at, _ := queue.ParseRedis(q.Redis) // without hosts if it is none
			hosts = append(hosts, at.Hosts...)
		}
	}
	return hosts
}

// declarable returns kinds without how zkstate stores them.
func declarable() []resource.Kind {
	var ks []resource.Kind
	for _, k := range kinds() {
		ks = append(ks, k.Kind)
	}
	return ks
}
