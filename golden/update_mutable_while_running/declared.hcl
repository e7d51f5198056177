# Timeouts, labels and lifecycle change in place, also while workers are live.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
  labels  = { env = "prod", team = "data" }

  timeouts {
    join = "5m"
  }

  lifecycle {
    protect = true
  }
}
