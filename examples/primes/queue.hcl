# A queue of numbers. README.md says how to run what submits, executes and counts.

muster {
  stack = "primes"
  roots = [var.root]
}

variable "root" {
  type        = string
  default     = "/queues"
  description = "znode below which the queue lives"
}

variable "redis" {
  type        = string
  default     = "redis://127.0.0.1:6379/0"
  description = "where tasks and results are; muster dev --redis prints one"
}

queue "primes" {
  root  = var.root
  redis = var.redis

  # A number that cannot be read is tried once more.
  attempts = 2
  backoff  = "100ms"

  timeouts {
    # What an executor held that was killed goes back after this. It is short for the example; the default is 10s.
    session = "3s"
  }
}
