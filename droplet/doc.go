// Package droplet is what can run: stacks, the root file systems that droplets
// run on, and droplets, each with the content-addressed image behind it.
//
//	Stack  (host: the machine's own /usr)          as data, the engine makes it
//	  └── Image  <sha256>.tar  app/ deps/ …        on the Shelf, shared
//	        └── Droplet  guid, commands, sidecars  what a build gave
package droplet
