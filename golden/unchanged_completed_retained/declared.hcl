# A completed job that is retained and equal needs nothing: it is not replaced again and again.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4

  lifecycle {
    on_complete = "retain"
  }
}
