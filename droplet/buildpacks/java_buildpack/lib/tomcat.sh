# These functions run a web app in the Tomcat of the stack.

# find_tomcat sets tomcat to the folder of a Tomcat, and conf to that of its settings.
find_tomcat() {
	for tomcat in /usr/share/tomcat10 /usr/share/tomcat11 /usr/share/tomcat9; do
		for conf in "$tomcat/skel/conf" "$tomcat/etc"; do
			[ ! -f "$tomcat/bin/bootstrap.jar" ] || [ ! -f "$conf/web.xml" ] || return 0
		done
	done
	return 1
}

# tomcat_version prints the version in the name of Tomcat's library.
tomcat_version() { basename "$(readlink -f "$tomcat/lib/catalina.jar")" | sed 's/.*-\([0-9][0-9.]*\)\.jar$/\1/'; }

# add_tomcat BASE writes the settings of the app's own Tomcat into a folder.
add_tomcat() {
	mkdir -p "$1/conf" "$1/lib" "$1/logs" "$1/temp" "$1/webapps" "$1/work"
	cp "$conf/web.xml" "$conf/catalina.properties" "$1/conf/"
	cp "$home/lib/tomcat/server.xml" "$home/lib/tomcat/context.xml" "$home/lib/tomcat/logging.properties" "$1/conf/"
	# The compiler is the one that Tomcat uses for JSP.
	for compiler in /usr/share/java/eclipse-jdt-core.jar /usr/share/java/ecj.jar; do
		[ -f "$compiler" ] || continue
		if "$java" -cp "$compiler" org.eclipse.jdt.internal.compiler.batch.Main -11 -proc:none -nowarn \
			-cp "$tomcat/lib/catalina.jar" -d "$1/lib" "$home/lib/tomcat/DewStartup.java" >/dev/null 2>&1; then
			return 0
		fi
	done
	echo '       WARNING: the stack has no compiler for JSP. If the app cannot start, Tomcat answers 404'
	sed -i '/DewStartup/d' "$1/conf/server.xml"
}

# warn_javax warns about an app that was written for older versions of Tomcat.
warn_javax() {
	case $1 in 9.*) return 0 ;; esac
	if grep -Eqs 'ns/j(avaee|2ee)|DTD Web Application' "$build/WEB-INF/web.xml"; then
		echo "       WARNING: WEB-INF/web.xml is for javax.servlet, but Tomcat $1 has jakarta.servlet. If the app does not start, convert it"
	fi
}
