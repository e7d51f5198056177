# An equal job is left alone whether ready, forming or running; the summary counts their health.
muster {
  stack = "etl"
}

job "degraded" {
  root    = "/jobs"
  workers = 4
}

job "finishing" {
  root    = "/jobs"
  workers = 4
}

job "forming" {
  root    = "/jobs"
  workers = 4
}

job "ready" {
  root    = "/jobs"
  workers = 4
}

job "running" {
  root    = "/jobs"
  workers = 4
}
