#!/usr/bin/env bash
# Everything that only a GPU can show, on a host that has one: no network, no cargo, no compiler.
#
#   scripts/gpu-check.sh [--program PATH] [--time 8m] [--seed N] [--log FILE] [STEP...]
#
# Steps, all of them without one named: backends check replay mutants fuzz bench.
# PATH is a built thd-fuzz (target/release/thd-fuzz without it). Everything printed goes to the log as
# well. Needs NVRTC: the CUDA toolkit, or LD_LIBRARY_PATH or THD_FUZZ_NVRTC that leads to it.
# Exit status: the highest of the steps': 0 clean, 1 a finding or a mutant not found, 2 a fault.
set -uo pipefail
cd "$(dirname "$0")/.."

program=target/release/thd-fuzz time=8m seed=1 log=gpu-check.log steps=()
while [ $# -gt 0 ]; do
  case "$1" in
    --program | --time | --seed | --log)
      if [ $# -lt 2 ]; then echo "$1 needs a value" >&2; exit 2; fi
      declare "${1#--}=$2"; shift 2 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    backends | check | replay | mutants | fuzz | bench) steps+=("$1"); shift ;;
    *) echo "unknown step or option '$1'; the steps are backends check replay mutants fuzz bench" >&2; exit 2 ;;
  esac
done
[ ${#steps[@]} -gt 0 ] || steps=(backends check replay mutants fuzz bench)
if ! [ -x "$program" ]; then
  echo "$program is no program: build it with cargo build --release, or name one with --program" >&2
  exit 2
fi
: >"$log" || exit 2

worst=0
run() {
  echo "\$ thd-fuzz ${*@Q}" | tee -a "$log"
  "$program" "$@" 2>&1 | tee -a "$log"
  local status=${PIPESTATUS[0]}
  echo "status $status, ${SECONDS} s in all" | tee -a "$log"
  [ "$status" -le "$worst" ] || worst=$status
}

for step in "${steps[@]}"; do
  echo "== $step" | tee -a "$log"
  case $step in
    backends) run backends ;;
    check)
      # The seed report's four shapes.
      for lengths in '[128]' '[128,96]' '[128,128]' '[256,256]'; do
        run check "$lengths h8 d128 causal do=ones" --backend cuda
      done ;;
    replay) run replay corpus --backend cuda --against emulator ;;
    mutants) run mutants --backend cuda --seed "$seed" ;;
    fuzz) run fuzz --backend cuda --time "$time" --seed "$seed" ;;
    bench)
      run bench '[128] h8 d128 causal'
      run bench '[4096,4096,4096,4096] h16 d128 causal' ;;
  esac
done
echo "worst status $worst" | tee -a "$log"
exit "$worst"
