<?php
// Stands before PHP's own server, which would show every file below its root:
// those that begin with a dot, and those that are there for the platform.
$path = rawurldecode((string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
$hidden = preg_match('~/\.~', $path)
	|| preg_match('~^/+(vendor/|composer\.(json|lock)$|Procfile$|manifest\.yml$)~i', $path);
if ($hidden) {
	http_response_code(404);
	echo "404 Not Found\n";
	return true;
}
return false; // as if this file were not there
