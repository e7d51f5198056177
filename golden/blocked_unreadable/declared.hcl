# A job that cannot be read is blocked with the reason; the rest of the plan goes on.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}

job "b" {
  root    = "/jobs"
  workers = 4
}

job "c" {
  root    = "/jobs"
  workers = 4
}
