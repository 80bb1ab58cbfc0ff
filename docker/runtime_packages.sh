#!/usr/bin/env bash
# Prints the distribution's packages whose shared libraries PROGRAM is linked with, one a line: what
# an image that runs the program needs, under the names that this distribution gives them.
#   docker/runtime_packages.sh PROGRAM
set -euo pipefail
program=$1

ldd "$program" | awk '$2 == "=>" { print $3 }' | while read -r library; do
  # The package's own path may be /lib/... or /usr/lib/..., which are one folder.
  real=$(readlink -f "$library")
  dpkg-query --search "$real" 2> /dev/null || dpkg-query --search "${real#/usr}"
done | cut -d : -f 1 | sort -u
