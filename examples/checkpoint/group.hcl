# Three standby coordinators, of which one leads, and eight workers that follow it. README.md says how to run them.

muster {
  stack = "checkpoint"
  roots = [var.root]
}

variable "root" {
  type        = string
  default     = "/apps"
  description = "znode below which the group lives"
}

group "checkpoint" {
  root = var.root

  # The first coordinators wait for each other so long; then the one that came first leads.
  settle = "1s"

  # What it runs is not declared: it is the file duties/coordinator of each member.
  leader "coordinator" {}

  timeouts {
    # A leader that is killed is replaced after this. It is short for the example; the default is 10s.
    session = "3s"

    # The script of a leader that gives up its duty has so long to end.
    drain = "5s"
  }
}
