# 60s is 1m and an address is not compared: renaming a block or a unit changes nothing.
muster {
  stack = "etl"
}

job "b" {
  root    = "/jobs"
  workers = 4
  name    = "a"

  timeouts {
    join = "100s"
  }
}
