# A job cannot be named like the folder of muster's own znodes.
muster {
  stack = "etl"
}

job "a" {
  name    = ".muster"
  workers = 4
}
