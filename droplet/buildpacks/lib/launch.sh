# launch DEPS PROFILE makes the files of earlier buildpacks available when the app
# starts: their programs, their libraries, and their own scripts.
launch() {
	for dir in "$1"/*/; do
		n=$(basename "$dir")
		for script in "$dir"profile.d/*; do
			[ ! -f "$script" ] || cp "$script" "$2/${n}_$(basename "$script")"
		done
	done
	cat >"$2/000_deps.sh" <<'END'
for __dew_dir in "$DEPS_DIR"/*; do
	if [ -d "$__dew_dir/bin" ]; then export PATH="$__dew_dir/bin:$PATH"; fi
	if [ -d "$__dew_dir/lib" ]; then
		export LD_LIBRARY_PATH="$__dew_dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LIBRARY_PATH="$__dew_dir/lib${LIBRARY_PATH:+:$LIBRARY_PATH}"
	fi
done
unset __dew_dir
END
}

# use_deps DEPS makes the files of earlier buildpacks available to a built-in buildpack:
# their programs, their libraries, and the variables in their folder env.
use_deps() {
	for dir in "$1"/*/; do
		dir=${dir%/}
		[ ! -d "$dir/bin" ] || export PATH="$dir/bin:$PATH"
		if [ -d "$dir/lib" ]; then
			export LD_LIBRARY_PATH="$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LIBRARY_PATH="$dir/lib${LIBRARY_PATH:+:$LIBRARY_PATH}"
		fi
		[ ! -d "$dir/include" ] || export CPATH="$dir/include${CPATH:+:$CPATH}"
		[ ! -d "$dir/pkgconfig" ] || export PKG_CONFIG_PATH="$dir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
		for file in "$dir"/env/*; do
			name=${file##*/}
			case $name in [!A-Za-z_]* | *[!A-Za-z0-9_]*) continue ;; esac
			[ ! -f "$file" ] || export "$name=$(cat "$file")"
		done
	done
}
