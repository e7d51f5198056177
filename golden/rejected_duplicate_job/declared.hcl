# Two blocks with one label are an error that names both places.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 4
}

job "a" {
  root    = "/jobs"
  workers = 4
}
