# An argument of a lifecycle or timeouts block that stands in the job itself is told where it belongs.
muster {
  stack = "etl"
}

defaults {
  session = "20s"
}

job "a" {
  workers     = 4
  on_complete = "remove"
  protect     = true
}
