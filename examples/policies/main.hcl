# A stack to try the policies of this directory on: muster test --policy .
variable "jobs" {
  type = map(object({
    workers = number
    labels  = optional(map(string), { team = "data", tier = "bronze" })
    stale   = optional(string, "30s")
    protect = optional(bool, false)
    root    = optional(string, "/jobs")
  }))
  default = { nightly = { workers = 4 } }
}

variable "queues" { # name and Redis
  type    = map(string)
  default = {}
}

variable "take_over" {
  type    = list(string)
  default = []
}

muster {
  stack     = "etl-prod"
  take_over = var.take_over
}

zookeeper {
  acl = ["auth::cdrwa"]
}

defaults {
  root = "/jobs"
}

job "batch" {
  for_each = var.jobs
  name     = each.key
  root     = each.value.root
  workers  = each.value.workers
  labels   = each.value.labels
  timeouts {
    stale = each.value.stale
  }
  lifecycle {
    protect = each.value.protect
  }
}

queue "tasks" {
  for_each = var.queues
  name     = each.key
  root     = "/jobs/queues"
  redis    = each.value
  labels   = { team = "data" }
}
