# A root is an absolute znode path.
muster {
  stack = "etl"
}

job "a" {
  root    = "jobs"
  workers = 4
}
