# workers is the one argument that every job must have.
muster {
  stack = "etl"
}

job "a" {
}
