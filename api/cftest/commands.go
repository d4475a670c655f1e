package cftest

import (
	"maps"
	"slices"
	"strings"
)

// commands are the commands of `cf help -a`, version 8.18.4.
const commands = `
help version login logout passwd target api auth apps app create-app push scale delete rename
cancel-deployment continue-deployment start stop restart stage-package restage restart-app-instance run-task
task tasks terminate-task packages create-package revision revisions rollback droplets set-droplet
download-droplet events logs env set-env unset-env stacks stack update-stack copy-source create-app-manifest
get-health-check set-health-check get-readiness-health-check enable-ssh disable-ssh ssh-enabled ssh
marketplace services service create-service update-service upgrade-service delete-service rename-service
create-service-key service-keys service-key delete-service-key bind-service unbind-service
cleanup-outdated-service-bindings bind-route-service unbind-route-service create-user-provided-service
update-user-provided-service share-service unshare-service orgs org create-org delete-org rename-org spaces
space create-space delete-space rename-space apply-manifest allow-space-ssh disallow-space-ssh
space-ssh-allowed domains create-private-domain delete-private-domain create-shared-domain
delete-shared-domain router-groups routes route create-route update-route check-route map-route unmap-route
delete-route delete-orphaned-routes update-destination share-route unshare-route move-route network-policies
add-network-policy remove-network-policy buildpacks create-buildpack update-buildpack delete-buildpack
create-user delete-user org-users set-org-role unset-org-role space-users set-space-role unset-space-role
org-quotas org-quota set-org-quota create-org-quota delete-org-quota update-org-quota share-private-domain
unshare-private-domain space-quotas space-quota create-space-quota update-space-quota delete-space-quota
set-space-quota unset-space-quota service-brokers create-service-broker update-service-broker
delete-service-broker rename-service-broker purge-service-offering purge-service-instance service-access
enable-service-access disable-service-access security-group security-groups create-security-group
update-security-group delete-security-group bind-security-group unbind-security-group
bind-staging-security-group staging-security-groups unbind-staging-security-group bind-running-security-group
running-security-groups unbind-running-security-group running-environment-variable-group
staging-environment-variable-group set-staging-environment-variable-group
set-running-environment-variable-group isolation-segments create-isolation-segment delete-isolation-segment
enable-org-isolation disable-org-isolation set-org-default-isolation-segment
reset-org-default-isolation-segment set-space-isolation-segment reset-space-isolation-segment feature-flags
feature-flag enable-feature-flag disable-feature-flag labels set-label unset-label curl config oauth-token
ssh-code add-plugin-repo remove-plugin-repo list-plugin-repos repo-plugins plugins install-plugin
uninstall-plugin
`

// live are the commands that need a real container. A script runs them, and nothing is
// recorded.
var live = map[string]string{
	"ssh":              "another protocol, into a container",
	"ssh-code":         "the answer is a secret that is good once",
	"download-droplet": "the answer is the droplet itself",
}

// leftOut are the commands that send nothing to the server.
var leftOut = map[string]string{
	"help": "of the client alone", "version": "of the client alone", "config": "writes the client's own file",
	"add-plugin-repo": "of plugins", "remove-plugin-repo": "of plugins", "list-plugin-repos": "of plugins", "repo-plugins": "of plugins",
	"plugins": "of plugins", "install-plugin": "of plugins", "uninstall-plugin": "of plugins",
}

// Commands returns the names of all commands of the client.
func Commands() []string { return strings.Fields(commands) }

// Live returns the commands that are run but not recorded.
func Live() []string { return slices.Sorted(maps.Keys(live)) }

// Unscripted returns the commands of the client that have no recording and are neither
// live nor left out. needless are the live or left-out commands that have a recording.
func Unscripted(all []Recording) (missing, needless []string) {
	recorded := map[string]bool{}
	for _, r := range all {
		recorded[r.Command[0]] = true
	}
	for _, name := range Commands() {
		_, elsewhere := live[name]
		_, left := leftOut[name]
		switch {
		case !recorded[name] && !elsewhere && !left:
			missing = append(missing, name)
		case recorded[name] && left:
			needless = append(needless, name)
		}
	}
	return missing, needless
}
