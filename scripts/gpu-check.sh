#!/usr/bin/env bash
# Everything that only a GPU can show, on a host that has one: no network, no cargo, no compiler.
#
#   scripts/gpu-check.sh [--program PATH] [--time 8m] [--seed N] [--log FILE] [STEP...]
#
# Steps, all of them without one named: backends check replay faults mutants fuzz bench.
# PATH is a built thd-fuzz (target/release/thd-fuzz without it). Everything printed goes to the log as
# well. Needs NVRTC: the CUDA toolkit, or LD_LIBRARY_PATH or THD_FUZZ_NVRTC that leads to it.
# Exit status: the highest of the steps': 0 clean, 1 a finding or a mutant not found, 2 a fault.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd) || exit 2
script=$root/scripts/$(basename "$0")

program=$root/target/release/thd-fuzz time=8m seed=1 log=gpu-check.log steps=()
while [ $# -gt 0 ]; do
  case "$1" in
    --program | --time | --seed | --log)
      if [ $# -lt 2 ]; then echo "$1 needs a value" >&2; exit 2; fi
      declare "${1#--}=$2"; shift 2 ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$script"; exit 0 ;;
    backends | check | replay | faults | mutants | fuzz | bench) steps+=("$1"); shift ;;
    *) echo "unknown step or option '$1'; the steps are backends check replay faults mutants fuzz bench" >&2; exit 2 ;;
  esac
done
[ ${#steps[@]} -gt 0 ] || steps=(backends check replay faults mutants fuzz bench)
if ! [ -f "$program" ] || ! [ -x "$program" ]; then
  echo "$program is no program: build it with cargo build --release, or name one with --program" >&2
  exit 2
fi
: >"$log" || exit 2
program=$(realpath "$program") log=$(realpath "$log")
cd "$root" || exit 2

worst=0
run() {
  echo "\$ thd-fuzz ${*@Q}" | tee -a "$log"
  "$program" "$@" 2>&1 | tee -a "$log"
  local status=${PIPESTATUS[0]}
  echo "status $status, ${SECONDS} s in all" | tee -a "$log"
  [ "$status" -le 2 ] || status=2
  [ "$status" -le "$worst" ] || worst=$status
}

# A kernel that hangs, stores where nothing is, or stores behind dK, as the case's scale says: each is told
# as what it is, and the case after it passes.
faults() {
  local folder expected seen
  folder=$(mktemp -d) || exit 2
  local anchor='  const BackwardWork work = backward_work(p);'
  # The barrier keeps the loop: a compiler may drop one that does nothing.
  local wrong='  volatile i32 always = 1;\
  if (p.scale == 7.0f) while (always) __syncthreads();\
  if (p.scale == 3.0f) *(volatile i32*)16 = 1;\
  if (p.scale == 5.0f) ((volatile u16*)p.dk.data)[p.kv_len[0] * p.dk.row_stride] = 1;'
  sed "s/^$anchor\$/&\n$wrong/" kernels/backward.cu >"$folder/backward.cu"
  if cmp -s kernels/backward.cu "$folder/backward.cu"; then
    echo "kernels/backward.cu has changed: nothing was planted" | tee -a "$log"; worst=2; return
  fi
  mkdir "$folder/cases"
  local n=0 text
  for text in '[70]' '[70] scale=7' '[70]' '[70] scale=3' '[70]' '[70] scale=5' '[70]'; do
    n=$((n + 1)); echo "$text" >"$folder/cases/$n"
  done
  local before=$worst
  run replay "$folder/cases" --backend cuda --kernel "$folder/backward.cu" | tee "$folder/said"
  worst=$before # findings are what was planted
  seen=$(grep -oE '^ok  |: (hang|device-fault|guard) \(' "$folder/said" | tr -d ' :(\n')
  expected=okhangokdevice-faultokguardok
  if [ "$seen" = "$expected" ]; then
    echo "each fault was told as what it is, and the case after it passed" | tee -a "$log"
  else
    echo "expected $expected, saw $seen" | tee -a "$log"; worst=2
  fi
  rm -rf "$folder"
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
    faults) faults ;;
    mutants) run mutants --backend cuda --seed "$seed" ;;
    fuzz) run fuzz --backend cuda --time "$time" --seed "$seed" ;;
    bench)
      run bench '[128] h8 d128 causal'
      run bench '[4096,4096,4096,4096] h16 d128 causal' ;;
  esac
done
echo "worst status $worst" | tee -a "$log"
exit "$worst"
