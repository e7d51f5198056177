# A value that is not among the allowed ones gets a suggestion.
muster {
  stack = "etl"
}

job "a" {
  workers = 4
  lifecycle {
    on_complete = "retian"
  }
}
