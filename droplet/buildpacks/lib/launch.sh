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
	if [ -d "$__dew_dir/lib" ]; then export LD_LIBRARY_PATH="$__dew_dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; fi
done
unset __dew_dir
END
}
