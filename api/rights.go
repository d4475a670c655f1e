package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// right is what an endpoint asks of those who come.
type right struct {
	need  need
	at    noun // what the path's guid names; none: the need is no matter of a place
	local bool // answered on the socket alone
	open  bool // without a token what everybody can have is shown, unless a flag hides it

	secret bool // who may not ask is told that there is no such endpoint
}

// rights says for every pattern what it needs. A pattern that is missing here, or
// one here that nobody answers, keeps the server from starting.
var rights = map[string]right{
	"/":                 {need: toEnter}, // what is unknown is not told to strangers
	"GET /{$}":          {need: toLook},
	"GET /healthz":      {need: toLook},
	"GET /openapi.json": {need: toLook},
	"GET /metrics":      {need: toReadAll},

	"GET /v3":      {need: toEnter},
	"GET /v3/info": {need: toEnter},

	"GET /v3/info/usage_summary": {need: toReadAll, secret: true},

	"GET /v3/organizations":                            {need: toEnter},
	"POST /v3/organizations":                           {need: toEnter}, // a feature flag lets users, too
	"GET /v3/organizations/{guid}":                     {need: toRead, at: anOrg},
	"PATCH /v3/organizations/{guid}":                   {need: toManageOrg, at: anOrg},
	"DELETE /v3/organizations/{guid}":                  {need: toAdminister, at: anOrg},
	"GET /v3/organizations/{guid}/domains":             {need: toRead, at: anOrg},
	"GET /v3/organizations/{guid}/domains/default":     {need: toRead, at: anOrg},
	"GET /v3/organizations/{guid}/users":               {need: toRead, at: anOrg},
	"GET /v3/organizations/{guid}/relationships/quota": {need: toRead, at: anOrg},

	"GET /v3/spaces":                          {need: toEnter},
	"POST /v3/spaces":                         {need: toEnter}, // the body names the org
	"GET /v3/spaces/{guid}":                   {need: toRead, at: aSpace},
	"PATCH /v3/spaces/{guid}":                 {need: toManage, at: aSpace},
	"DELETE /v3/spaces/{guid}":                {need: toManageOrg, at: aSpace},
	"GET /v3/spaces/{guid}/users":             {need: toRead, at: aSpace},
	"GET /v3/spaces/{guid}/features":          {need: toRead, at: aSpace},
	"GET /v3/spaces/{guid}/features/{name}":   {need: toRead, at: aSpace},
	"PATCH /v3/spaces/{guid}/features/{name}": {need: toManage, at: aSpace},

	"GET /v3/roles":           {need: toEnter},
	"POST /v3/roles":          {need: toEnter}, // the body names the place
	"GET /v3/roles/{guid}":    {need: toRead, at: aRole},
	"DELETE /v3/roles/{guid}": {need: toManage, at: aRole},

	"GET /v3/users":           {need: toEnter},
	"POST /v3/users":          {need: toAdminister},
	"GET /v3/users/{guid}":    {need: toEnter}, // who shares an org is seen
	"PATCH /v3/users/{guid}":  {need: toAdminister, at: aUser},
	"DELETE /v3/users/{guid}": {need: toAdminister, at: aUser},

	"GET /v3/domains":           {need: toEnter},
	"POST /v3/domains":          {need: toEnter}, // the body names the org
	"GET /v3/domains/{guid}":    {need: toEnter}, // some have one org, some several, some none
	"PATCH /v3/domains/{guid}":  {need: toEnter},
	"DELETE /v3/domains/{guid}": {need: toEnter},

	"POST /v3/domains/{guid}/relationships/shared_organizations":         {need: toEnter},
	"DELETE /v3/domains/{guid}/relationships/shared_organizations/{org}": {need: toEnter},

	"POST /v3/spaces/{guid}/manifest_diff":          {need: toDevelop, at: aSpace},
	"POST /v3/spaces/{guid}/actions/apply_manifest": {need: toDevelop, at: aSpace},

	"DELETE /v3/spaces/{guid}/routes":           {need: toSupport, at: aSpace},
	"GET /v3/domains/{guid}/route_reservations": {need: toEnter},

	"GET /v3/routes":                       {need: toEnter},
	"POST /v3/routes":                      {need: toEnter}, // the body names the space
	"PATCH /v3/routes/{guid}":              {need: toSupport, at: aRoute},
	"GET /v3/routes/{guid}":                {need: toReadRoute, at: aRoute},
	"DELETE /v3/routes/{guid}":             {need: toSupport, at: aRoute},
	"GET /v3/routes/{guid}/destinations":   {need: toReadRoute, at: aRoute},
	"POST /v3/routes/{guid}/destinations":  {need: toSupport, at: aSharedRoute},
	"PATCH /v3/routes/{guid}/destinations": {need: toSupport, at: aRoute},

	"GET /v3/routes/{guid}/relationships/shared_spaces":            {need: toReadRoute, at: aRoute},
	"POST /v3/routes/{guid}/relationships/shared_spaces":           {need: toSupport, at: aRoute},
	"DELETE /v3/routes/{guid}/relationships/shared_spaces/{space}": {need: toSupport, at: aRoute},
	"PATCH /v3/routes/{guid}/relationships/space":                  {need: toDevelop, at: aRoute},

	"GET /v3/jobs/{guid}":         {need: toEnter}, // told to who began it
	"GET /v3/audit_events":        {need: toEnter},
	"GET /v3/audit_events/{guid}": {need: toEnter},

	"DELETE /v3/routes/{guid}/destinations/{destination}": {need: toSupport, at: aSharedRoute},
	"PATCH /v3/routes/{guid}/destinations/{destination}":  {need: toSupport, at: aRoute},
	"GET /routing/v1/router_groups":                       {need: toEnter},
	"GET /routing/v1/router_groups/{guid}":                {need: toEnter},

	"GET /api/v1/info":                  {need: toLook},
	"GET /api/v1/read/{guid}":           {need: toRead, at: anApp},
	"GET /api/v1/meta":                  {need: toEnter},
	"GET /stream/v1/apps/{guid}":        {need: toRead, at: anApp},
	"GET /stream/v1/apps/{guid}/verify": {need: toRead, at: anApp},
	"GET /dew/v1/status":                {need: toAdminister},
	"GET /dew/v1/credentials":           {need: toAdminister, local: true},
	"POST /dew/v1/token":                {need: toAdminister, local: true},
	"POST /dew/v1/shutdown":             {need: toAdminister},

	"GET /dew/v1/inbox":       {need: toAdminister}, // mails are nobody else's
	"GET /dew/v1/inbox/wait":  {need: toAdminister},
	"GET /dew/v1/inbox/{id}":  {need: toAdminister},
	"POST /dew/v1/inbox/link": {need: toAdminister},

	"GET /dew/v1/apps/{guid}/crash-mails": {need: toRead, at: anApp},
	"PUT /dew/v1/apps/{guid}/crash-mails": {need: toDevelop, at: anApp},

	"GET /dew/v1/apps/{guid}/crashes":    {need: toRead, at: anApp},
	"POST /dew/v1/processes/{guid}/kill": {need: toDevelop, at: aProcess},

	"GET /v3/apps":           {need: toEnter},
	"POST /v3/apps":          {need: toEnter}, // the body names the space
	"GET /v3/apps/{guid}":    {need: toRead, at: anApp},
	"PATCH /v3/apps/{guid}":  {need: toDevelop, at: anApp},
	"DELETE /v3/apps/{guid}": {need: toDevelop, at: anApp},

	"POST /v3/apps/{guid}/actions/start":   {need: toSupport, at: anApp},
	"POST /v3/apps/{guid}/actions/stop":    {need: toSupport, at: anApp},
	"POST /v3/apps/{guid}/actions/restart": {need: toSupport, at: anApp},

	"POST /v3/apps/{guid}/actions/clear_buildpack_cache": {need: toSupport, at: anApp},

	"GET /v3/apps/{guid}/env":                             {need: toReadEnv, at: anApp},
	"GET /v3/apps/{guid}/environment_variables":           {need: toReadEnv, at: anApp},
	"PATCH /v3/apps/{guid}/environment_variables":         {need: toSupport, at: anApp},
	"GET /v3/apps/{guid}/relationships/current_droplet":   {need: toRead, at: anApp},
	"PATCH /v3/apps/{guid}/relationships/current_droplet": {need: toSupport, at: anApp},
	"GET /v3/apps/{guid}/droplets/current":                {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/droplets":                        {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/manifest":                        {need: toReadSecrets, at: anApp},
	"GET /v3/apps/{guid}/permissions":                     {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/processes":                       {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/routes":                          {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/packages":                        {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/builds":                          {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/sidecars":                        {need: toRead, at: anApp},
	"POST /v3/apps/{guid}/sidecars":                       {need: toDevelop, at: anApp},

	"GET /v3/apps/{guid}/ssh_enabled":       {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/features":          {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/features/{name}":   {need: toRead, at: anApp},
	"PATCH /v3/apps/{guid}/features/{name}": {need: toSupport, at: anApp}, // some are the developers'
	"POST /dew/v1/ssh-code":                 {need: toEnter},              // the door decides what it opens

	"GET /v3/processes":                                         {need: toEnter},
	"GET /v3/processes/{guid}":                                  {need: toRead, at: aProcess},
	"PATCH /v3/processes/{guid}":                                {need: toSupport, at: aProcess},
	"POST /v3/processes/{guid}/actions/scale":                   {need: toSupport, at: aProcess},
	"GET /v3/processes/{guid}/stats":                            {need: toRead, at: aProcess},
	"GET /v3/processes/{guid}/process_instances":                {need: toRead, at: aProcess},
	"GET /v3/apps/{guid}/processes/{type}/process_instances":    {need: toRead, at: anApp},
	"GET /v3/processes/{guid}/sidecars":                         {need: toRead, at: aProcess},
	"DELETE /v3/processes/{guid}/instances/{index}":             {need: toSupport, at: aProcess},
	"GET /v3/apps/{guid}/processes/{type}":                      {need: toRead, at: anApp},
	"PATCH /v3/apps/{guid}/processes/{type}":                    {need: toSupport, at: anApp},
	"GET /v3/apps/{guid}/processes/{type}/stats":                {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/processes/{type}/sidecars":             {need: toRead, at: anApp},
	"POST /v3/apps/{guid}/processes/{type}/actions/scale":       {need: toSupport, at: anApp},
	"DELETE /v3/apps/{guid}/processes/{type}/instances/{index}": {need: toSupport, at: anApp},

	"GET /v3/organization_quotas":           {need: toEnter},
	"POST /v3/organization_quotas":          {need: toAdminister},
	"GET /v3/organization_quotas/{guid}":    {need: toEnter}, // what there is to have is no secret; who has it is
	"PATCH /v3/organization_quotas/{guid}":  {need: toAdminister},
	"DELETE /v3/organization_quotas/{guid}": {need: toAdminister},
	"GET /v3/space_quotas":                  {need: toEnter},
	"POST /v3/space_quotas":                 {need: toEnter}, // the body names the org
	"GET /v3/space_quotas/{guid}":           {need: toReadQuota, at: aSpaceQuota},
	"PATCH /v3/space_quotas/{guid}":         {need: toManageOrg, at: aSpaceQuota},
	"DELETE /v3/space_quotas/{guid}":        {need: toManageOrg, at: aSpaceQuota},

	"POST /v3/organization_quotas/{guid}/relationships/organizations": {need: toAdminister},
	"POST /v3/space_quotas/{guid}/relationships/spaces":               {need: toManageOrg, at: aSpaceQuota},
	"DELETE /v3/space_quotas/{guid}/relationships/spaces/{space}":     {need: toManageOrg, at: aSpaceQuota},
	"GET /v3/organizations/{guid}/usage_summary":                      {need: toRead, at: anOrg},
	"GET /v3/spaces/{guid}/usage_summary":                             {need: toRead, at: aSpace},

	"GET /v3/security_groups":                       {need: toEnter},
	"POST /v3/security_groups":                      {need: toAdminister},
	"GET /v3/security_groups/{guid}":                {need: toEnter}, // those of what one sees
	"PATCH /v3/security_groups/{guid}":              {need: toAdminister, at: aGroup},
	"DELETE /v3/security_groups/{guid}":             {need: toAdminister, at: aGroup},
	"GET /v3/spaces/{guid}/running_security_groups": {need: toRead, at: aSpace},
	"GET /v3/spaces/{guid}/staging_security_groups": {need: toRead, at: aSpace},

	"POST /v3/security_groups/{guid}/relationships/running_spaces":           {need: toEnter}, // the body names the spaces
	"POST /v3/security_groups/{guid}/relationships/staging_spaces":           {need: toEnter},
	"DELETE /v3/security_groups/{guid}/relationships/running_spaces/{space}": {need: toEnter},
	"DELETE /v3/security_groups/{guid}/relationships/staging_spaces/{space}": {need: toEnter},

	"GET /v3/isolation_segments":           {need: toEnter},
	"POST /v3/isolation_segments":          {need: toAdminister},
	"GET /v3/isolation_segments/{guid}":    {need: toEnter}, // those of orgs that one sees
	"PATCH /v3/isolation_segments/{guid}":  {need: toAdminister},
	"DELETE /v3/isolation_segments/{guid}": {need: toAdminister},

	"GET /v3/isolation_segments/{guid}/organizations":                        {need: toEnter},
	"GET /v3/isolation_segments/{guid}/relationships/organizations":          {need: toEnter},
	"POST /v3/isolation_segments/{guid}/relationships/organizations":         {need: toAdminister},
	"DELETE /v3/isolation_segments/{guid}/relationships/organizations/{org}": {need: toAdminister},
	"GET /v3/isolation_segments/{guid}/relationships/spaces":                 {need: toEnter},
	"GET /v3/spaces/{guid}/relationships/isolation_segment":                  {need: toRead, at: aSpace},
	"PATCH /v3/spaces/{guid}/relationships/isolation_segment":                {need: toManageOrg, at: aSpace},
	"GET /v3/organizations/{guid}/relationships/default_isolation_segment":   {need: toRead, at: anOrg},
	"PATCH /v3/organizations/{guid}/relationships/default_isolation_segment": {need: toManageOrg, at: anOrg},

	"GET /v3/environment_variable_groups/{name}":   {need: toEnter}, // all apps see them
	"PATCH /v3/environment_variable_groups/{name}": {need: toAdminister},

	"GET /v3/app_usage_events":            {need: toEnter}, // who does not see everything sees none
	"GET /v3/app_usage_events/{guid}":     {need: toEnter},
	"GET /v3/service_usage_events":        {need: toEnter},
	"GET /v3/service_usage_events/{guid}": {need: toEnter},

	"POST /v3/app_usage_events/actions/destructively_purge_all_and_reseed":     {need: toAdminister},
	"POST /v3/service_usage_events/actions/destructively_purge_all_and_reseed": {need: toAdminister},

	"GET /v3/tasks":                        {need: toEnter},
	"GET /v3/tasks/{guid}":                 {need: toRead, at: aTask},
	"PATCH /v3/tasks/{guid}":               {need: toDevelop, at: aTask},
	"POST /v3/tasks/{guid}/actions/cancel": {need: toSupport, at: aTask},
	"PUT /v3/tasks/{guid}/cancel":          {need: toSupport, at: aTask},
	"GET /v3/apps/{guid}/tasks":            {need: toRead, at: anApp},
	"POST /v3/apps/{guid}/tasks":           {need: toDevelop, at: anApp},

	"GET /v3/deployments":                            {need: toEnter},
	"POST /v3/deployments":                           {need: toEnter}, // the body names the app
	"GET /v3/deployments/{guid}":                     {need: toRead, at: aDeployment},
	"PATCH /v3/deployments/{guid}":                   {need: toDevelop, at: aDeployment},
	"POST /v3/deployments/{guid}/actions/cancel":     {need: toSupport, at: aMovingDeployment},
	"POST /v3/deployments/{guid}/actions/continue":   {need: toSupport, at: aMovingDeployment},
	"GET /v3/apps/{guid}/revisions":                  {need: toRead, at: anApp},
	"GET /v3/apps/{guid}/revisions/deployed":         {need: toRead, at: anApp},
	"GET /v3/revisions/{guid}":                       {need: toRead, at: aRevision},
	"PATCH /v3/revisions/{guid}":                     {need: toDevelop, at: aRevision},
	"GET /v3/revisions/{guid}/environment_variables": {need: toReadSecrets, at: aRevision},

	"GET /v3/sidecars/{guid}":    {need: toRead, at: aSidecar},
	"PATCH /v3/sidecars/{guid}":  {need: toDevelop, at: aSidecar},
	"DELETE /v3/sidecars/{guid}": {need: toDevelop, at: aSidecar},

	"POST /v3/resource_matches":             {need: toEnter},
	"GET /v3/packages":                      {need: toEnter},
	"POST /v3/packages":                     {need: toEnter}, // the body names the app
	"GET /v3/packages/{guid}":               {need: toRead, at: aPackage},
	"PATCH /v3/packages/{guid}":             {need: toDevelop, at: aPackage},
	"POST /v3/packages/{guid}/upload":       {need: toDevelop, at: aPackage},
	"POST /dew/v1/spaces/{guid}/buildpacks": {need: toDevelop, at: aSpace},
	"GET /v3/packages/{guid}/droplets":      {need: toRead, at: aPackage},
	"GET /v3/packages/{guid}/download":      {need: toReadSecrets, at: aPackage},
	"DELETE /v3/packages/{guid}":            {need: toDevelop, at: aPackage},
	"DELETE /v3/droplets/{guid}":            {need: toDevelop, at: aDroplet},
	"GET /v3/builds":                        {need: toEnter},
	"PATCH /v3/builds/{guid}":               {need: toDevelop, at: aBuild},
	"POST /v3/builds":                       {need: toEnter}, // the body names the package
	"GET /v3/builds/{guid}":                 {need: toRead, at: aBuild},
	"GET /v3/droplets":                      {need: toEnter},
	"GET /v3/droplets/{guid}":               {need: toRead, at: aDroplet},
	"PATCH /v3/droplets/{guid}":             {need: toDevelop, at: aDroplet},
	"GET /v3/droplets/{guid}/download":      {need: toDownload, at: aDroplet},

	"GET /v3/buildpacks":          {need: toEnter},
	"GET /v3/buildpacks/{guid}":   {need: toEnter},
	"PATCH /v3/buildpacks/{guid}": {need: toAdminister, at: aBuildpack},

	"POST /v3/buildpacks":                          {need: toAdminister},
	"DELETE /v3/buildpacks/{guid}":                 {need: toAdminister, at: aBuildpack},
	"POST /v3/buildpacks/{guid}/upload":            {need: toAdminister, at: aBuildpack},
	"POST /v3/admin/actions/clear_buildpack_cache": {need: toAdminister},
	"POST /v3/droplets":                            {need: toEnter}, // the body names the app
	"POST /v3/droplets/{guid}/upload":              {need: toDevelop, at: aDroplet},

	"GET /v3/stacks":                 {need: toEnter},
	"GET /v3/stacks/{guid}":          {need: toEnter},
	"PATCH /v3/stacks/{guid}":        {need: toAdminister, at: aStack},
	"GET /v3/stacks/{guid}/apps":     {need: toEnter},
	"POST /v3/stacks":                {need: toAdminister},
	"DELETE /v3/stacks/{guid}":       {need: toAdminister, at: aStack},
	"GET /dew/v1/stacks":             {need: toEnter},
	"POST /dew/v1/stacks":            {need: toAdminister},
	"POST /dew/v1/stacks/upload":     {need: toAdminister},
	"GET /dew/v1/stacks/{guid}":      {need: toEnter},
	"DELETE /dew/v1/stacks/{guid}":   {need: toAdminister},
	"GET /v3/feature_flags":          {need: toEnter},
	"GET /v3/feature_flags/{name}":   {need: toEnter},
	"PATCH /v3/feature_flags/{name}": {need: toAdminister},

	"GET /v3/service_brokers":           {need: toEnter},
	"POST /v3/service_brokers":          {need: toEnter}, // the body may name a space
	"GET /v3/service_brokers/{guid}":    {need: toEnter}, // some have a space, most have none
	"PATCH /v3/service_brokers/{guid}":  {need: toEnter},
	"DELETE /v3/service_brokers/{guid}": {need: toEnter},

	"GET /v3/service_offerings":           {need: toEnter, open: true},
	"GET /v3/service_offerings/{guid}":    {need: toEnter, open: true}, // who may have a plan of it sees it
	"PATCH /v3/service_offerings/{guid}":  {need: toEnter},             // it is its broker's
	"DELETE /v3/service_offerings/{guid}": {need: toEnter},

	"GET /v3/service_plans":           {need: toEnter, open: true},
	"GET /v3/service_plans/{guid}":    {need: toEnter, open: true},
	"PATCH /v3/service_plans/{guid}":  {need: toEnter},
	"DELETE /v3/service_plans/{guid}": {need: toEnter},

	"GET /v3/service_plans/{guid}/visibility":          {need: toEnter},
	"POST /v3/service_plans/{guid}/visibility":         {need: toEnter},
	"PATCH /v3/service_plans/{guid}/visibility":        {need: toEnter},
	"DELETE /v3/service_plans/{guid}/visibility/{org}": {need: toEnter},

	"GET /v3/service_instances":                    {need: toEnter},
	"POST /v3/service_instances":                   {need: toEnter}, // the body names the space
	"GET /v3/service_instances/{guid}":             {need: toRead, at: aServiceInstance},
	"PATCH /v3/service_instances/{guid}":           {need: toDevelop, at: aServiceInstance},
	"DELETE /v3/service_instances/{guid}":          {need: toDevelop, at: aServiceInstance},
	"GET /v3/service_instances/{guid}/credentials": {need: toReadSecrets, at: aServiceInstance},
	"GET /v3/service_instances/{guid}/parameters":  {need: toRead, at: aServiceInstance},
	"GET /v3/service_instances/{guid}/permissions": {need: toRead, at: aServiceInstance},

	"GET /v3/service_instances/{guid}/relationships/shared_spaces":               {need: toRead, at: aServiceInstance},
	"POST /v3/service_instances/{guid}/relationships/shared_spaces":              {need: toDevelop, at: aServiceInstance},
	"DELETE /v3/service_instances/{guid}/relationships/shared_spaces/{space}":    {need: toDevelop, at: aServiceInstance},
	"GET /v3/service_instances/{guid}/relationships/shared_spaces/usage_summary": {need: toRead, at: aServiceInstance},

	"GET /v3/service_credential_bindings":                   {need: toEnter},
	"POST /v3/service_credential_bindings":                  {need: toEnter}, // the body names what is bound
	"GET /v3/service_credential_bindings/{guid}":            {need: toRead, at: aCredentialBinding},
	"PATCH /v3/service_credential_bindings/{guid}":          {need: toDevelop, at: aCredentialBinding},
	"DELETE /v3/service_credential_bindings/{guid}":         {need: toSupport, at: aCredentialBinding}, // keys are the developers'
	"GET /v3/service_credential_bindings/{guid}/details":    {need: toReadSecrets, at: aCredential},
	"GET /v3/service_credential_bindings/{guid}/parameters": {need: toRead, at: aCredentialBinding},

	"GET /v3/service_route_bindings":                   {need: toEnter},
	"POST /v3/service_route_bindings":                  {need: toEnter}, // the body names the route
	"GET /v3/service_route_bindings/{guid}":            {need: toRead, at: aRouteBinding},
	"PATCH /v3/service_route_bindings/{guid}":          {need: toDevelop, at: aRouteBinding},
	"DELETE /v3/service_route_bindings/{guid}":         {need: toSupport, at: aRouteBinding},
	"GET /v3/service_route_bindings/{guid}/parameters": {need: toReadSecrets, at: aRouteBinding},

	"GET /stream/v1/services/{guid}":   {need: toReadSecrets, at: aServiceInstance}, // a server may print anything
	"GET /dew/v1/apps/{guid}/bindings": {need: toRead, at: anApp},

	"GET /dew/v1/service_instances/{guid}/snapshots":                     {need: toRead, at: aServiceInstance},
	"POST /dew/v1/service_instances/{guid}/snapshots":                    {need: toDevelop, at: aServiceInstance},
	"POST /dew/v1/service_instances/{guid}/snapshots/{snapshot}/restore": {need: toDevelop, at: aServiceInstance},
	"DELETE /dew/v1/service_instances/{guid}/snapshots/{snapshot}":       {need: toDevelop, at: aServiceInstance},
}

// checkRights compares the table with the patterns that are answered.
func checkRights(patterns []string) error {
	var errs []error
	for _, p := range patterns {
		if _, ok := rights[p]; !ok {
			errs = append(errs, fmt.Errorf("nothing says which right %q needs", p))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(rights)) {
		if !slices.Contains(patterns, p) {
			errs = append(errs, fmt.Errorf("a right is said for %q, which nobody answers", p))
		}
	}
	return errors.Join(errs...)
}
