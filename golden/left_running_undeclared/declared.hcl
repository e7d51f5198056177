# Our job that is no longer declared but has live workers is left running and reported.
muster {
  stack = "etl"
}

job "kept" {
  root    = "/jobs"
  workers = 4
}
