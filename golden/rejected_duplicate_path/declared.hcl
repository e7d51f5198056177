# Two jobs may not share a znode, whatever their labels.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}

job "b" {
  name    = "a"
  root    = "/jobs"
  workers = 4
}
