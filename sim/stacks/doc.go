// Package stacks has worlds of apply: locks, saved plans, and changes beside workers. Tests only.
package stacks
