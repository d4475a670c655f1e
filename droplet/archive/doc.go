// Package archive checks the tar archives of images and names the files of packages,
// droplets and stacks on disk. Incomplete files have a special name, and it removes
// those that an earlier daemon left. It also packs the programs that buildpacks use.
package archive
