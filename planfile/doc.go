// Package planfile writes a plan into a file and reads it back, so that apply runs exactly the plan that was approved.
//
// It refuses a file that differs in any byte from what Encode writes. The package talks to no server. Its caller says
// which kinds a file may hold.
package planfile
