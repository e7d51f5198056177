# on_running = "fail" is the classic check at submission: a live job blocks, also an equal one.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4

  lifecycle {
    on_running = "fail"
  }
}
