# Two tasks of an application, of which two versions run side by side. README.md says how to run them.

muster {
  stack = "cron-example"
  roots = [var.root]
}

variable "root" {
  type        = string
  default     = "/apps"
  description = "znode below which the group lives"
}

group "reports" {
  root = var.root

  # A member must be this old before a task moves to it. It is short for the example; the default is 5s.
  settle = "2s"

  # Both versions know it. It runs on the newest one that has a live member.
  cron "report" {
    schedule = "@every 1s"
  }

  # Version 1.9 has no file of this name: nobody runs it before a member of version 2.0 is there.
  cron "cleanup" {
    schedule = "@every 2s"
    lost     = "skip"
  }

  timeouts {
    session = "4s"
  }
}
