# take_over names other stacks.
muster {
  stack     = "etl"
  take_over = ["etl"]
}

job "a" {
  root    = "/jobs"
  workers = 4
}
