// Package groups has worlds of a group's members: seats, duties, runs and shared state. Tests only.
package groups
