#!/usr/bin/env bash
# Written by smp-launch --dry-run=sh: starts 3 ranks without smp-launch.
# On each host:  bash job.sh HOST   (0 = a, 1 = b)
# with the same MASTER_ADDR (an address of host 0), MASTER_PORT (a free port of host 0)
# and SMP_JOB_KEY (64 hex digits, secret) on all hosts. If a rank fails, the script
# ends the ranks of its host.
set -uo pipefail
host=${1:?the number of this host, 0 to 1}
: "${MASTER_ADDR:?an address of host 0}" "${MASTER_PORT:?a free port of host 0}"
: "${SMP_JOB_KEY:?64 hex digits, the same on all hosts}"
SMP_JOB_ID=$(printf %s "$SMP_JOB_KEY" | sha256sum | cut -c1-16)
TORCHELASTIC_RUN_ID=$SMP_JOB_ID
export MASTER_ADDR MASTER_PORT SMP_JOB_KEY SMP_JOB_ID TORCHELASTIC_RUN_ID
export A='x y'
: "${MY_TOKEN?export MY_TOKEN}"; export MY_TOKEN
export WORLD_SIZE=3 GROUP_WORLD_SIZE=2 ROLE_NAME=default ROLE_WORLD_SIZE=3 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 SMP_HOSTS=a,b

rank() {
  local cpus; cpus=$(nproc)
  (export "$@"
   export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((cpus > LOCAL_WORLD_SIZE ? cpus / LOCAL_WORLD_SIZE : 1))}"
   exec /bin/echo 'it'\''s' '$(HOME) $$') </dev/null &
}
trap 'kill $(jobs -p) 2>/dev/null' EXIT
case $host in
0)
  rank RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 NODE_RANK=0 ROLE_RANK=0
  rank RANK=1 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 NODE_RANK=0 ROLE_RANK=1
  ranks=2;;
1)
  rank RANK=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=1 NODE_RANK=1 ROLE_RANK=2 CUDA_VISIBLE_DEVICES=1
  ranks=1;;
*)
  echo "host $host: expected 0 to 1" >&2; exit 2;;
esac
while ((ranks-- > 0)); do wait -n || exit; done
