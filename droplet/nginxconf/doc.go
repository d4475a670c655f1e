// Package nginxconf prepares the nginx.conf of an app for the nginx of a stack. The
// templates in it are those of Cloud Foundry's nginx buildpack, and have the same
// results:
//
//	{{port}}           the port of the app
//	{{env "NAME"}}     a variable, with < > & ' " escaped as in HTML, unless buildpack.yml
//	                   lists it in nginx.plaintext_env_vars
//	{{module "name"}}  load_module for a module of the app or of the stack
//	{{nameservers}}    the DNS servers in /etc/resolv.conf
//
// The nginx of a Linux distribution writes its files to folders that only root can
// change. Prepare sets folders of the app for those that the configuration does not set.
package nginxconf
