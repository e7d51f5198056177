# Where a znode is not a job, nothing is touched: the declared job is blocked, the rest goes on.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}

job "b" {
  root    = "/jobs"
  workers = 4
}
