// Package jobs has worlds of a job's workers: joins, barriers, ends. Tests only.
package jobs
