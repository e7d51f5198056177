# What cannot change while workers run blocks the row, names who is live, and says what to type.
muster {
  stack = "etl"
}

job "degraded" {
  root    = "/jobs"
  workers = 8
}

job "finishing" {
  root    = "/jobs"
  workers = 8
}

job "forming" {
  root    = "/jobs"
  workers = 8
}

job "running" {
  root    = "/jobs"
  workers = 8
}
