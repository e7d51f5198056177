# take_over makes the declared jobs of another stack ours, live or not, and touches nothing else of theirs.
muster {
  stack     = "etl"
  take_over = ["etl-old"]
}

job "a" {
  root    = "/jobs"
  workers = 4
}

job "b" {
  root    = "/jobs"
  workers = 4
  labels  = { team = "data" }
}
