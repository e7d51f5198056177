# One writer of a file outside of ZooKeeper. README.md says what can go wrong, and how the epoch prevents it.

muster {
  stack = "fencing-example"
  roots = [var.root]
}

variable "root" {
  type        = string
  default     = "/apps"
  description = "znode below which the group lives"
}

group "ledger" {
  root   = var.root
  settle = "1s"

  leader "writer" {}

  timeouts {
    session = "3s"
  }
}
