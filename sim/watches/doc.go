// Package watches has worlds of those who wait for events: no event may be lost. Tests only.
package watches
