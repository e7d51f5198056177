# A reference to a variable that does not exist gets a suggestion.
muster {
  stack = "etl"
}

variable "count" {
  type    = number
  default = 4
}

job "a" {
  workers = var.cuont
}
