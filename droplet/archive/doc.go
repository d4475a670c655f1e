// Package archive checks the tar archives of images and names the files of packages,
// droplets and stacks on disk. A file that is not complete has a name of its own, and
// what an earlier daemon left unfinished is removed.
package archive
