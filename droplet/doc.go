// Package droplet is what can run, and how it comes about: packages are what was
// pushed, builds make droplets of them, and stacks are the root file systems that
// droplets run on.
//
//	zip + matched files
//	  └── Package  <sha256>.tar  app/…              trees, together the pool of resources
//	        └── Build  STAGING → STAGED | FAILED    side by side, one per app, in Run
//	              │    Catalog: which buildpacks; Builder: the container they run in
//	              └── Droplet  guid, commands       kept by Droplets
//	                    └── Image  <sha256>.tar     app/ deps/ …, shared by droplets
//	Stack  (host: the machine's own /usr)           as data, the engine makes it
//
// In the container of a build, buildpacks/stage.sh runs the scripts of each:
//
//	detect ─▶ supply … supply ─▶ supply + finalize | compile ─▶ release
//
// Everything on disk is named after its content and gets that name only when it is
// whole. Equal files give an equal tree, and that an equal image: what was staged
// before is not staged again.
package droplet
