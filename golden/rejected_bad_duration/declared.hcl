# A duration has a number and a unit.
muster {
  stack = "etl"
}

job "a" {
  workers = 4
  timeouts {
    join = "100 seconds"
  }
}
