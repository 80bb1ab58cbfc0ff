# Sourced by scripts/dev: what the project needs from the distribution, and how it gets there.
#
# need_packages GROUP...: installs with apt what is missing of these groups, says what it installs,
# and when nothing is missing does nothing: no network, no root, under a tenth of a second.
# Debian 12 and Ubuntu 24.04 have all of it under these names; elsewhere the list is printed.
#
# want_packages GROUP...: the same for what is only good to have; what the distribution does not have
# is done without, with a line that says so.

# A tool counts as there wherever it comes from; a library only as the distribution's package.
# "package:command" is a tool, "package" alone a library.
packages_build=(
  g++:g++ cmake:cmake ninja-build:ninja python3:python3 git:git
  libgtest-dev libcli11-dev nlohmann-json3-dev zlib1g-dev
  prometheus-cpp-dev libcivetweb-dev libyaml-cpp-dev libcurl4-openssl-dev
)
packages_test=(
  prometheus:prometheus prometheus:promtool prometheus-alertmanager:prometheus-alertmanager
  prometheus-alertmanager:amtool victoria-metrics:victoria-metrics victoria-metrics:vmalert
  curl:curl clang-format:clang-format valgrind:valgrind locales
)
packages_bench=(libbenchmark-dev libmimalloc2.0 valgrind:valgrind)
# The live page is bundled by npm and tested in Chromium. Without them there is the plain page, and
# its tests are skipped.
packages_page=(nodejs:node npm:npm chromium:chromium)
packages_lint=(clang:clang++ clang-tidy:clang-tidy clang-format:clang-format)

as_root=()  # the command that makes root of us, where we are not

has_tool() {
  command -v "$1" > /dev/null || return 1
  case $1 in
    cmake) tool_is_at_least 3.25 "$(cmake --version | sed -n '1s/[^0-9]*//p')" ;;
    g++) tool_is_at_least 12 "$(g++ -dumpfullversion)" ;;
    node) tool_is_at_least 18 "$(node --version | tr -d v)" ;;
  esac
}

tool_is_at_least() {
  [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# Prints what of the named groups is missing, one package a line.
missing_packages() {
  local group entry libraries=()
  for group in "$@"; do
    local -n entries=packages_$group
    for entry in "${entries[@]}"; do
      if [[ $entry == *:* ]]; then
        has_tool "${entry#*:}" || echo "${entry%%:*}"
      else
        libraries+=("$entry")
      fi
    done
  done
  [ ${#libraries[@]} -gt 0 ] && command -v dpkg-query > /dev/null || return 0
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${libraries[@]}" 2> /dev/null ||
    true)
  for entry in "${libraries[@]}"; do
    grep -qx "$entry installed" <<< "$installed" || echo "$entry"
  done
}

need_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@" | sort -u)
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! command -v apt-get > /dev/null; then
    fail "missing, and there is no apt-get to install them with: ${missing[*]}"
  fi
  become_root ||
    fail "missing; install them as root: apt-get install ${missing[*]}"
  say "installing with apt: ${missing[*]}"
  mkdir -p build
  local log=build/setup.log
  : > "$log"
  with_services_held_back "$log" "${missing[@]}"
  mapfile -t missing < <(missing_packages "$@" | sort -u)
  [ ${#missing[@]} -eq 0 ] ||
    fail "apt has no version that is new enough of: ${missing[*]}"
}

become_root() {
  [ "$(id -u)" -ne 0 ] || return 0
  command -v sudo > /dev/null && as_root=(sudo)
}

want_packages() {
  local missing package found=()
  mapfile -t missing < <(missing_packages "$@" | sort -u)
  [ ${#missing[@]} -gt 0 ] || return 0
  if command -v apt-get > /dev/null && become_root; then
    mkdir -p build
    for package in "${missing[@]}"; do
      has_candidate "$package" || "${as_root[@]}" apt-get -q update >> build/setup.log 2>&1 || true
      if has_candidate "$package"; then found+=("$package"); fi
    done
  fi
  if [ ${#found[@]} -gt 0 ]; then
    say "installing with apt: ${found[*]}"
    apt_install build/setup.log "${found[@]}" || true
  fi
  mapfile -t missing < <(missing_packages "$@" | sort -u)
  [ ${#missing[@]} -eq 0 ] || say "done without, as they cannot be had here: ${missing[*]}"
}

has_candidate() {
  apt-cache policy "$1" 2> /dev/null | grep -q '^ *Candidate: [^(]'
}

# The packages of Prometheus, its Alertmanager and VictoriaMetrics would start servers of their own;
# the tests start theirs, on their own ports. So while apt runs, services are refused, and no unit is
# left enabled.
with_services_held_back() {
  local log=$1 policy=/usr/sbin/policy-rc.d held=no server new_servers=() status=0
  shift
  for server in prometheus prometheus-alertmanager victoria-metrics; do
    if [[ " $* " == *" $server "* ]] && ! command -v "$server" > /dev/null; then
      new_servers+=("$server")
    fi
  done
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" > /dev/null
    "${as_root[@]}" chmod 755 "$policy"
    held=yes
    trap '"${as_root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  apt_install "$log" "$@" || status=$?
  if [ "$held" = yes ]; then
    "${as_root[@]}" rm -f "$policy"
    trap - EXIT
  fi
  for server in "${new_servers[@]}"; do
    # For either init system. If it fails, tests run all the same.
    "${as_root[@]}" update-rc.d "$server" disable >> "$log" 2>&1 || true
  done
  if [ "$status" -ne 0 ]; then
    tail -n 30 "$log" >&2
    fail "apt-get failed; all it said is in $log"
  fi
}

# First with the package lists that are there; they are fetched only where that does not do.
apt_install() {
  local log=$1
  shift
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -y
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  if "${apt[@]}" install --no-install-recommends "$@" >> "$log" 2>&1 < /dev/null; then
    return 0
  fi
  "${apt[@]}" update >> "$log" 2>&1 < /dev/null &&
    "${apt[@]}" install --no-install-recommends "$@" >> "$log" 2>&1 < /dev/null
}
