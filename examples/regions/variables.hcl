# What differs between environments. All files of a directory are one configuration.

variable "environment" {
  type        = string
  default     = "dev"
  description = "part of the stack's name and of the znode root"
}

variable "regions" {
  type        = map(number)
  description = "workers by region"

  validation {
    condition     = length(var.regions) > 0
    error_message = "Name at least one region, such as { eu = 2 }."
  }
}

locals {
  most  = 64
  total = sum(values(var.regions))
}
