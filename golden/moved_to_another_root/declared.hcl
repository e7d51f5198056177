# A job that moves to another root is created there, and the old one has a row that says where it came from.
muster {
  stack = "etl"
  roots = ["/old"]
}

job "a" {
  root    = "/jobs"
  workers = 4
}
