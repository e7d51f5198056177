# A mistyped function gets a suggestion.
muster {
  stack = "etl"
}

job "a" {
  workers = mni(4, 8)
}
