package plan

import "errors"

// The results of a commit that a caller handles.
var (
	// ErrMoved means that somebody changed the resource after it was read. Nothing was written. Read again and make a
	// new plan.
	ErrMoved = errors.New("state changed since it was read")
	// ErrUnknown means that the connection was lost during the write, and nobody knows whether it succeeded. Read
	// again: the next plan shows it.
	ErrUnknown = errors.New("outcome unknown")
	// ErrAlreadyDone means that ZooKeeper already is as the row wants it. Nothing was written: the resource to delete
	// is gone, or the one to create exists, is this stack's, ready and equal. Count it as done.
	ErrAlreadyDone = errors.New("already done")
	// ErrLeft means that the folders of some deleted generations stay: nothing in them tells whose they are, or ZooKeeper
	// does not let them be deleted. The error says where and why. Delete them by hand if nobody needs them.
	ErrLeft = errors.New("it cannot be collected")
	// ErrApplied means that this saved plan was applied before, in whole or in part. Make a new plan.
	ErrApplied = errors.New("this plan was already applied")
)
