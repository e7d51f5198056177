# A reference to a local that does not exist gets a suggestion.
muster {
  stack = "etl"
}

locals {
  size = 4
}

job "a" {
  workers = local.sise
}
