# A declared job without a znode is created; values that are not the default are shown.
muster {
  stack = "etl"
}

job "ingest" {
  root    = "/jobs"
  workers = 24
  labels  = { team = "data" }

  timeouts {
    join = "5m"
  }
}
