# What the scripts of a GPU share, to be sourced from the root: steps with their time, commands whose
# output goes into a log. Whoever sources it sets `log` to a file that is there.
# shellcheck shell=bash disable=SC2154

say() { echo "== $* [$SECONDS s]" | tee -a "$log"; }

# logged COMMAND...: what it prints goes into the log; on failure its last lines are shown as well.
logged() {
  local started
  started=$(wc -c < "$log")
  "$@" >> "$log" 2>&1 && return
  tail -c +$((started + 1)) "$log" | tail -n 40 >&2
  return 1
}

# Where python3 has a package; nothing where it has none.
python_folder() { python3 -c "import $1; print(list($1.__path__)[0])" 2> /dev/null || true; }

# generator_of BUILD: Ninja for a new build folder, where it is there.
generator_of() {
  if [ ! -f "$1/CMakeCache.txt" ] && command -v ninja > /dev/null; then echo -G Ninja; fi
}

# usage_of SCRIPT: the comment at its head.
usage_of() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$1"; }
