package api

import (
	"maps"
	"slices"

	"github.com/dewrun/dew/api/v3"
)

var (
	// streamKinds are the forms of a log that is followed.
	streamKinds = []string{"text/event-stream", v3.LinesType}
	// logParameterNames are what can be said of the lines to follow.
	logParameterNames = slices.Sorted(maps.Keys(logParameters))
)

// daemonOperations are about this daemon, its logs, and what is dew's own.
var daemonOperations = map[string]operation{
	"GET /api/v1/info": gives[v3.LogCacheInfo](200),

	"GET /api/v1/meta": gives[v3.LogCacheMeta](200),

	"GET /api/v1/read/{guid}": gives[v3.LogCacheRead](200).ask("start_time", "end_time", "limit", "descending", "envelope_types"),

	"GET /dew/v1/apps/{guid}/bindings":    gives[v3.AppBindings](200),
	"GET /dew/v1/apps/{guid}/crash-mails": gives[v3.CrashMails](200),
	"PUT /dew/v1/apps/{guid}/crash-mails": gives[v3.CrashMails](200).from(jsonOf[v3.CrashMails]()),
	"GET /dew/v1/apps/{guid}/crashes":     gives[v3.Crashes](200).paged().by(byTime...),

	"GET /dew/v1/credentials": gives[v3.Credentials](200),

	"GET /dew/v1/inbox":       gives[v3.Inbox](200).ask("to", "kind", "subject", "after", "limit"),
	"POST /dew/v1/inbox/link": gives[v3.InboxLink](201),
	"GET /dew/v1/inbox/wait":  gives[v3.Inbox](200).ask("to", "kind", "subject", "after", "timeout"),
	"GET /dew/v1/inbox/{id}":  gives[v3.Mail](200),

	"POST /dew/v1/processes/{guid}/kill": ends(204).from(jsonOf[v3.Kill]()),

	"GET /dew/v1/service_instances/{guid}/snapshots":                     gives[v3.ServiceSnapshots](200),
	"POST /dew/v1/service_instances/{guid}/snapshots":                    begins(),
	"DELETE /dew/v1/service_instances/{guid}/snapshots/{snapshot}":       ends(204),
	"POST /dew/v1/service_instances/{guid}/snapshots/{snapshot}/restore": begins(),

	"POST /dew/v1/shutdown": ends(202).from(jsonOf[v3.Shutdown]()),

	"POST /dew/v1/ssh-code": gives[v3.SSHCode](201),

	"POST /dew/v1/spaces/{guid}/buildpacks": gives[v3.UploadedFolder](201).from(uploadForm).ask("name"),

	"GET /dew/v1/stacks":           gives[v3.Stacks](200),
	"POST /dew/v1/stacks":          gives[v3.StackDetails](202).from(jsonOf[v3.MakeStack]()),
	"POST /dew/v1/stacks/upload":   gives[v3.StackDetails](201).from(bytesOf("application/octet-stream")).ask("name"),
	"DELETE /dew/v1/stacks/{guid}": ends(204),
	"GET /dew/v1/stacks/{guid}":    gives[v3.StackDetails](200),

	"GET /dew/v1/status": gives[v3.Status](200),

	"POST /dew/v1/token": gives[v3.LocalToken](201),

	"GET /healthz": gives[map[string]string](200),

	"GET /metrics": givesBytes("text/plain"),

	"GET /openapi.json": gives[map[string]any](200),

	"GET /routing/v1/router_groups":        gives[[]v3.RouterGroup](200).ask("name"),
	"GET /routing/v1/router_groups/{guid}": gives[v3.RouterGroup](200),

	"GET /stream/v1/apps/{guid}":        givesBytes(streamKinds...).ask(logParameterNames...),
	"GET /stream/v1/apps/{guid}/verify": gives[v3.LogReport](200),

	"GET /stream/v1/services/{guid}": givesBytes(streamKinds...).ask(logParameterNames...),

	"GET /{$}":     gives[v3.Root](200),
	"GET /v3":      gives[v3.Index](200),
	"GET /v3/info": gives[v3.Info](200),
}
