# A classic job without live workers is replaced, its childless companions with it; a stale one after its grace.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 3
}

job "b" {
  root    = "/jobs"
  workers = 3
}
