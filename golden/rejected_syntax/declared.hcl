# A line that is no HCL is shown with its place, and nothing is said about what follows from it.
muster {
  stack = "etl"
}

job "a" {
  workers = = 4
}
