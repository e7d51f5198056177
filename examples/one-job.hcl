# One job of four workers that find each other below /jobs/hello. `make demo` uses it.
#
#   muster dev --port 2181          in another terminal: a throw-away ZooKeeper at the default address
#   muster plan one-job.hcl         what would change
#   muster apply one-job.hcl        change it
#   muster worker --job hello --root /jobs --identity worker-0

muster {
  # Marks what belongs to these declarations. Jobs of other stacks are never touched.
  stack = "hello"

  # muster looks here for jobs of this stack that are no longer declared, even if none is declared.
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
    # A worker that crashes is gone after this. It is short for the demo; the default is 30s.
    session = "2s"

    # A job whose workers are all gone may be restarting: apply waits this long before it replaces the job.
    stale = "3s"
  }
}
