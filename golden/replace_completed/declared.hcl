# A completed job is made anew unless it is retained and equal: its last worker died before it could.
muster {
  stack = "etl"
}

job "changed" {
  root    = "/jobs"
  workers = 8

  lifecycle {
    on_complete = "retain"
  }
}

job "released" {
  root    = "/jobs"
  workers = 4
}

job "reset" {
  root    = "/jobs"
  workers = 4
}
