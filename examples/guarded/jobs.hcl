# Jobs that are protected, retained and checked before they are planned, in a ZooKeeper that others use too.

muster {
  stack = "ledger-prod"
  roots = ["/jobs/attic"] # muster also looks here for jobs of this stack that are no longer declared
}

zookeeper {
  servers         = ["127.0.0.1:2181"]
  session_timeout = "10s"

  # Who may do what with the znodes of these jobs: c create, d delete, r read, w write, a change this list. Without it
  # everybody may do everything or, if MUSTER_ZK_AUTH=digest:user:password is set, only that user. Three users:
  # acl = [
  #   "auth::cdrwa",                                      # the user who applies
  #   "digest:worker:omHNdNC4yTDmMuU4WLRCMsPiS0Y=:cdrw",  # the workers: name and hash of their password
  #   "world:anyone:r",                                   # everybody may look
  # ]

  # To use TLS. File names are relative to this directory.
  # tls {
  #   ca_file   = "ca.pem"
  #   cert_file = "me.pem"
  #   key_file  = "me.key"
  # }
}

variable "closing_day" {
  type        = number
  default     = 1
  description = "day of the month on which the books are closed"

  validation {
    condition     = var.closing_day >= 1 && var.closing_day <= 28
    error_message = "Choose a day that every month has: 1 to 28."
  }
}

job "ledger" {
  root    = "/jobs/prod"
  workers = 12

  lifecycle {
    protect     = true     # never deleted or replaced: such a row is "blocked: protected"
    on_complete = "retain" # kept as completed until it is replaced
  }

  labels = {
    owner       = "finance"
    on-call     = "ledger@example.com"
    closing-day = var.closing_day
  }
}

job "audit" {
  root    = "/jobs/prod"
  workers = 3

  timeouts {
    session = "45s" # a worker that crashed is gone after this
    stale   = "2m"  # the job may be replaced when no worker has been live for this long
  }

  precondition {
    condition     = fileexists("rules.txt")
    error_message = "The audit has no rules: write them into rules.txt, one a line."
  }

  labels = {
    owner = "finance"
    rules = sha256(file("rules.txt")) # a change of the file changes the label, so the plan shows it
  }
}

drift {
  ignore {
    address = "job.ledger"
    fields  = ["labels.on-call"]
    until   = "2099-12-31" # after this day the ignore is an error at this line
    reason  = "the on-call rota edits it by hand"
  }
}
