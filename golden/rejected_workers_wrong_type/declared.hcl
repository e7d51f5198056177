# A value that did not decode is not also checked for its range.
muster {
  stack = "etl"
}

job "a" {
  workers = "many"
}
