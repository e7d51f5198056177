# A job that another stack owns is never touched unless take_over names that stack.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}
