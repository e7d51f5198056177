# Neither declarations nor jobs: the plan says so in one sentence.
muster {
  stack = "etl"
}
