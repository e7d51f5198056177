# A muster block must name its stack.
muster {
}

job "a" {
  root    = "/jobs"
  workers = 4
}
