package v3

// Errors is the body of every response that is not a success.
type Errors struct {
	Errors []Error `json:"errors"`
}

// Error is one error. Clients check Title, and some complete texts of Detail.
type Error struct {
	Code   int    `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

// Titles and codes that clients check.
const (
	TitleNotFound         = "CF-ResourceNotFound" // also for an unknown path, with DetailUnknownRequest
	TitleUnprocessable    = "CF-UnprocessableEntity"
	TitleBadRequest       = "CF-BadRequest"
	TitleBadQuery         = "CF-BadQueryParameter"
	TitleMessageParse     = "CF-MessageParseError"
	TitleNotAuthenticated = "CF-NotAuthenticated"
	TitleInvalidAuthToken = "CF-InvalidAuthToken"
	TitleNotAuthorized    = "CF-NotAuthorized"
	TitleOrgSuspended     = "CF-OrgSuspended"
	TitleUnknown          = "UnknownError"

	CodeNotFound         = 10010
	CodeUnknownRequest   = 10000
	CodeUnprocessable    = 10008
	CodeBadRequest       = 10005
	CodeBadQuery         = 10005
	CodeMessageParse     = 1001
	CodeNotAuthenticated = 10002
	CodeInvalidAuthToken = 1000
	CodeNotAuthorized    = 10003
	CodeOrgSuspended     = 10017
	CodeUnknown          = 10001
)

// Complete texts of Detail that clients check.
const (
	DetailUnknownRequest  = "Unknown request"
	DetailAppNotFound     = "App not found"
	DetailDropletNotFound = "Droplet not found"
	DetailProcessNotFound = "Process not found"
	DetailInstanceMissing = "Instance not found"
	DetailAssignDroplet   = "Assign a droplet before starting this app."
)
