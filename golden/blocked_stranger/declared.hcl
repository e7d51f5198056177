# A persistent child of a job znode is nobody's worker: it is named and blocks what would delete it.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 8
}

job "done" {
  root    = "/jobs"
  workers = 4
}

job "empty" {
  root    = "/jobs"
  workers = 8
}
