# What is declared here, a plan compares with ZooKeeper, and apply makes so:
#
#   muster dev --port 2181     in another terminal: a throw-away ZooKeeper to try things on
#   muster plan                what would change
#   muster apply               change it, after asking
#   muster status              who is live, who is missing

muster {
  # Marks what belongs to these declarations: jobs of other stacks are never touched. Choose it once.
  stack = "STACK"
}

# Without this block, and without --servers and MUSTER_SERVERS, ZooKeeper is at 127.0.0.1:2181.
#
# zookeeper {
#   servers = ["zk1:2181", "zk2:2181", "zk3:2181"]
#   acl     = ["auth::cdrwa"] # only who has the same MUSTER_ZK_AUTH=digest:user:password may read and change these jobs
# }

# For every job of this configuration.
defaults {
  root = "/jobs" # the znode below which they live
}

# A job of two workers. Each of them is a process, in a container of its own or not:
#
#   muster worker --job hello --root /jobs -- ./my-command
job "hello" {
  workers = 2

  # Everything else has a default. These are often changed:
  #
  # timeouts {
  #   session = "30s" # a worker that has crashed is gone after this
  #   stale   = "30s" # a job whose workers are all gone may be replaced after this
  # }
  #
  # lifecycle {
  #   on_complete = "reset" # when all have completed: ready for the next run. Or "retain" it, or "remove" it
  # }
}
