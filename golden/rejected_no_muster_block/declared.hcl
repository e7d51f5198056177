# Without a stack muster cannot know which jobs it may change.
job "a" {
  root    = "/jobs"
  workers = 4
}
