# Every error is reported once, in one run, and none that merely follows from another.
muster {
  stack = "etl"
}

job "a" {
  workers = 0
  root    = "jobs"
  lifecycle {
    protect = "maybe"
  }
}

job "b" {
  wokers = 4
}

timeouts {
}
