# each exists only beside for_each.
muster {
  stack = "etl"
}

job "a" {
  workers = each.value
}
