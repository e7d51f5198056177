# A precondition that does not hold shows its message and the values it saw.
muster {
  stack = "etl"
}

job "a" {
  for_each = { eu = 12, us = 100 }
  name     = "a-${each.key}"
  workers  = each.value

  precondition {
    condition     = each.value <= 64
    error_message = "At most 64 workers a region."
  }
}
