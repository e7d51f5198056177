# A mistyped block gets a suggestion.
muster {
  stack = "etl"
}

jbo "a" {
  workers = 4
}
