# A job may not lie inside another one: its znode would look like a worker.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}

job "b" {
  root    = "/jobs/a"
  workers = 4
}
