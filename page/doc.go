// Package page is the read-only web page of "muster serve": what ZooKeeper holds, for people who would rather look than
// read.
//
// A Board is what is known now. Views turn it into fragments of HTML with ids, so that only those that changed are sent
// to who looks. The package writes nothing anywhere, and the page loads nothing from elsewhere.
package page
