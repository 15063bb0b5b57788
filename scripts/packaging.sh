# Sourced by the scripts that make packages: what they have in common.
#
# --program FILE   use this program; without it, `scripts/program` compiles one
# OUTPUT           the folder that packages are written to: target/packages
# LEVEL            how much they are compressed: 9; 1 is fast, for tests
level=${LEVEL:-9}
output=${OUTPUT:-target/packages}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Of the commit and not of the build, so that the same commit gives the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export TZ=UTC LC_ALL=C
umask 022

# usage: what the script that was called says of itself.
usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}

# machine_of PROGRAM: the architecture that a program is for.
machine_of() {
  readelf --file-header "$1" | sed -n 's/^ *Machine: *//p' | sed 's/.*X86-64$/x86_64/; s/^AArch64$/aarch64/'
}

# write_documents PROGRAM FOLDER: completions and manual pages, which the program itself writes, below FOLDER.
write_documents() {
  local program=$1 folder=$2
  mkdir -p "$folder/completions"
  "$program" completions bash >"$folder/completions/tidegate.bash"
  "$program" completions fish >"$folder/completions/tidegate.fish"
  "$program" completions zsh >"$folder/completions/_tidegate"
  "$program" manual "$folder/man/man1"
}

# finish FILE: writes its checksum next to it, and says what was made.
finish() {
  (cd "$(dirname "$1")" && sha256sum "$(basename "$1")" >"$(basename "$1").sha256")
  echo "$1: $(stat --format=%s "$1") bytes"
}
