# A default must fit the type of its variable.
muster {
  stack = "etl"
}

variable "count" {
  type    = number
  default = "four"
}

job "a" {
  workers = var.count
}
