# Too few and too many workers are both reported, in one run.
muster {
  stack = "etl"
}

job "a" {
  workers = 0
}

job "b" {
  workers = 20001
}
