# Nothing read from ZooKeeper acts on a terminal: escape sequences, C1, bidirectional overrides.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}

job "b" {
  root    = "/jobs"
  workers = 8
}
