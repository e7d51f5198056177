# The leftover of a run that died is replaced after its grace, and the row says what completed work is forgotten.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4

  timeouts {
    stale = "2m"
  }
}

job "b" {
  root    = "/jobs"
  workers = 12
}
