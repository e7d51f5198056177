# A drift ignore must expire, and past its date it is an error that points at it.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}

drift {
  ignore {
    address = "job.a"
    fields  = ["labels"]
    until   = "2026-01-31"
    reason  = "OPS-1412 relabelling"
  }
}
