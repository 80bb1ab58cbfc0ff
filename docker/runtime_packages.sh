#!/usr/bin/env bash
# Prints the distribution's packages whose shared libraries PROGRAM is linked with, one a line: what
# an image that runs the program needs, under the names that this distribution gives them.
#   docker/runtime_packages.sh PROGRAM
set -euo pipefail
program=$1

libraries=()
while read -r library; do
  libraries+=("$(readlink -f "$library")")
done < <(ldd "$program" | awk '$2 == "=>" { print $3 }')
[ ${#libraries[@]} -gt 0 ] || exit 0

# The package's own path may be /lib/... or /usr/lib/..., which are one folder; it knows one of them.
found=$(dpkg-query --search "${libraries[@]}" "${libraries[@]#/usr}" 2> /dev/null || true)
paths=$(sed 's/^.*: //' <<< "$found")
for library in "${libraries[@]}"; do
  short=${library#/usr}
  if ! grep -qxF -e "$short" -e "/usr$short" <<< "$paths"; then
    echo "runtime_packages.sh: no package has $library" >&2
    exit 1
  fi
done
cut -d : -f 1 <<< "$found" | sort -u
