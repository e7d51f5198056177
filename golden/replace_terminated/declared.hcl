# A terminated job whose workers have all left is made anew at once, without a grace.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}
