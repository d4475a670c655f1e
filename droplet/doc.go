// Package droplet creates droplets: packages are the files that users push, and builds
// create droplets from them. Package droplet/stack has the root file systems they run
// on.
//
//	zip + matched files
//	  └── Package  <sha256>.tar  app/…              trees, together the pool of resources
//	        └── Build  STAGING → STAGED | FAILED    side by side, one per app, in Run
//	              │    Catalog: which buildpacks; Builder: the container they run in
//	              └── Droplet  guid, commands       stored by Droplets
//	                    └── Image  <sha256>.tar     app/ deps/ …, shared by droplets
//	Stack  (host: the machine's own /usr)           as data, the engine creates it
//
// In the container of a build, buildpacks/stage.sh runs the scripts of each buildpack:
//
//	detect ─▶ supply … supply ─▶ supply + finalize | compile ─▶ release
//
// Every file on disk is named after its content, and gets that name only when it is
// complete. Equal files give an equal tree and an equal image, so the same files are
// not staged again.
package droplet
