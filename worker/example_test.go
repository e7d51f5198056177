package worker_test

import (
	"context"
	"fmt"
	"log"

	"muster/plan"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A worker of a job joins, does its part, and completes.
func Example() {
	ctx, addrs, ingest := context.Background(), servers.Addrs(), applyIngest()
	s, err := zkconn.Dial(ctx, zkconn.Config{Servers: addrs})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	me := worker.Config{
		Root: ingest.Root, Job: ingest.Name, Identity: "worker-0", Info: znode.Worker{IP: "10.0.0.1", Port: 7000},
	}
	m, err := worker.Join(ctx, s, me)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("I am %d of %d\n", m.ID, m.Job.Workers)
	if err := m.Complete(ctx, 0); err != nil {
		log.Fatal(err)
	}
	// Output: I am 0 of 1
}

// applyIngest does what "muster apply" does with a declaration.
func applyIngest() job.Job {
	ctx := context.Background()
	ingest := job.Default()
	ingest.Root, ingest.Name, ingest.Workers = "/example-"+zkstate.NewID(), "ingest", 1
	s, err := zkconn.Dial(ctx, zkconn.Config{Servers: servers.Addrs()})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	store, err := zkstate.NewStore(s, zkstate.Config{Stack: "examples", Kinds: []zkstate.Kind{zkstate.Job()}})
	if err == nil {
		err = store.Commit(ctx, plan.Row{Path: ingest.Path(), New: ingest, Reason: plan.NotThere})
	}
	if err != nil {
		log.Fatal(err)
	}
	return ingest
}
