# A configuration may demand a newer muster.
muster {
  stack            = "etl"
  required_version = ">= 9.0"
}

job "a" {
  root    = "/jobs"
  workers = 4
}
