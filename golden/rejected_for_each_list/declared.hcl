# for_each takes a map or a set: a list has no keys that could stay.
muster {
  stack = "etl"
}

job "a" {
  for_each = ["x", "y"]
  workers  = 4
}
