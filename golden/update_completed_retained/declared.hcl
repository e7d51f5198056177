# A completed job that is retained keeps its completion when only its labels or its owner change.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
  labels  = { team = "data" }

  lifecycle {
    on_complete = "retain"
  }
}
