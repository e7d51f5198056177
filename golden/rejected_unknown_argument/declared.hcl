# A mistyped argument gets a suggestion.
muster {
  stack = "etl"
}

job "a" {
  wokers = 4
}
