# A znode name must be safe in a path and on a terminal.
muster {
  stack = "etl"
}

job "a" {
  name    = "a/b"
  workers = 4
}
