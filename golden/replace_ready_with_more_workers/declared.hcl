# Nobody has joined, so workers and roll_format may change; a worker that joins first wins.
muster {
  stack = "etl"
}

job "a" {
  root    = "/jobs"
  workers = 8
}

job "b" {
  root        = "/jobs"
  workers     = 4
  roll_format = "text"
}
