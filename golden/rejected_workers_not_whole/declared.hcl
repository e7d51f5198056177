# A number of workers is whole; the values used are shown.
muster {
  stack = "etl"
}

locals {
  base = 3
}

job "a" {
  workers = local.base * 1.5
}
