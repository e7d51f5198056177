# protect = true stops every delete and replace, also of a job that is no longer declared.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4

  lifecycle {
    protect = true
  }
}

job "b" {
  root    = "/jobs"
  workers = 8

  lifecycle {
    protect = true
  }
}
