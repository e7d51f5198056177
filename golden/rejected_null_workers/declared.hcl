# A required value must not be null.
muster {
  stack = "etl"
}

job "a" {
  workers = null
}
