# A variable that has neither a value nor a default says how to give one.
muster {
  stack = "etl"
}

variable "count" {
  type = number
}

job "a" {
  workers = var.count
}
