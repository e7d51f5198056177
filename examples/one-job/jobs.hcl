# One job: four workers that find each other below /jobs/hello. `make demo` walks through it.
#
#   muster dev --port 2181          in another terminal: a throw-away ZooKeeper, where muster looks for one
#   muster plan                     what would change
#   muster apply                    change it
#   muster worker --job hello --root /jobs --identity worker-0

muster {
  # Marks what belongs to these declarations. Jobs of other stacks are never touched.
  stack = "hello"

  # Looked through for jobs of ours that are no longer declared, also when none is declared any more.
  roots = [var.root]
}

variable "root" {
  type        = string
  default     = "/jobs"
  description = "znode below which the job lives"
}

# The job's znode is <root>/hello. Its name is the label, unless `name` says otherwise.
job "hello" {
  root    = var.root
  workers = 4

  timeouts {
    # A worker that crashes is gone after this. Short, to be seen; in production rather 30s, the default.
    session = "2s"

    # A job whose workers are all gone may only be restarting: apply waits so long before it clears away.
    stale = "3s"
  }
}
