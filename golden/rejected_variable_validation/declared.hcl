# A validation that fails shows its own message.
muster {
  stack = "etl"
}

variable "count" {
  type    = number
  default = 3
  validation {
    condition     = var.count % 2 == 0
    error_message = "Give an even number of workers."
  }
}

job "a" {
  workers = var.count
}
