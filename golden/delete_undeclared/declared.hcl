# Our jobs that are no longer declared and have nobody live are deleted, ready, stale, completed or terminated.
muster {
  stack = "etl"
}

job "kept" {
  root    = "/jobs"
  workers = 4
}
