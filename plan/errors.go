package plan

import "errors"

// What a commit may answer besides nil and an error of the world.
var (
	// ErrMoved means someone changed the job after it was read; nothing was written. Read again and make a new plan.
	ErrMoved = errors.New("state changed since it was read")
	// ErrUnknown means the connection was lost during the write and its outcome could not be learned. Read again: the
	// next plan tells.
	ErrUnknown = errors.New("outcome unknown")
	// ErrAlreadyDone means ZooKeeper already is as the row wants it and nothing was written: the job to delete is gone, or
	// the job to create exists, is ours, ready and equal. Count it as done.
	ErrAlreadyDone = errors.New("already done")
	// ErrApplied means that this saved plan was applied before, wholly or in part. It is spent: make a new plan.
	ErrApplied = errors.New("this plan was already applied")
)
