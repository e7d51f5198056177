# Four workers that compute in a ring, and live and die together. README.md says how to run them.

muster {
  stack = "gang"
  roots = [var.root]
}

variable "root" {
  type        = string
  default     = "/jobs"
  description = "znode below which the job lives"
}

job "ring" {
  root    = var.root
  workers = 4

  # Each worker brings its id, so that it finds its checkpoints again in the next run too.
  ids = "index"

  gang {
    restarts = 20

    # The code with which a command says that the result is wrong.
    final = [2]
  }

  timeouts {
    # The others begin again so long after a worker was killed. It is short for the example; the default is 30s.
    session = "10s"
  }
}
