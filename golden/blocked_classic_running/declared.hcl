# Classic workers that are live are never disturbed by a declaration of their job.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 3
}
