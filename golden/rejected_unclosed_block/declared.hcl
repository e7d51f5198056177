# A missing brace is reported where the block starts.
muster {
  stack = "etl"
}

job "a" {
  workers = 4
