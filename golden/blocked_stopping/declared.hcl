# While terminated workers are still live, the job is left alone, declared or not.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}
