# Locals that need each other have no value; the circle is named.
muster {
  stack = "etl"
}

locals {
  a = local.b
  b = local.a
}

job "a" {
  workers = local.a
}
