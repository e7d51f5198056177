# Jobs next to, or instead of, those of the classic worker controller: its root and its text format of the list of
# workers, so that programs that read the classic layout see what they expect.

muster {
  stack = "classic"
}

defaults {
  root        = "/twister2"
  roll_format = "text" # one line a worker: ip,port,workerID;nodeIP,rackName,datacenterName

  lifecycle {
    on_complete = "remove" # the classic rule: the last worker to complete deletes the job
    on_running  = "fail"   # the classic check at submission: a job that runs is not planned again
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
