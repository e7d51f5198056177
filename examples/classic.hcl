# Jobs beside those of the classic worker controller, or instead of them. They have its root and its text format of the
# list of workers, so programs that read the classic layout can read them.

muster {
  stack = "classic"
}

defaults {
  root        = "/twister2"
  roll_format = "text" # one line a worker: ip,port,workerID;nodeIP,rackName,datacenterName

  lifecycle {
    on_complete = "remove" # the classic rule: the last worker to complete deletes the job
    on_running  = "fail"   # the classic check at submission: a job that runs blocks its plan
  }
}

job "wordcount" {
  workers = 4
}

job "terasort" {
  workers = 16

  timeouts {
    join    = "100s" # wait this long for all workers
    barrier = "100s"
  }
}
