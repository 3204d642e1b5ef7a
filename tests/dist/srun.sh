#!/bin/sh
# Runs the tasks of one job step on this machine, with the variables that Slurm's srun sets for programs. The nodes are
# the addresses 127.0.0.1, 127.0.0.2, ... of this machine. The exit code is the largest one of all tasks.
#   srun.sh [-N NODES] -n TASKS COMMAND...       as in srun, tasks are distributed in blocks
set -eu

usage() {
  echo 'srun.sh: usage: srun.sh [-N NODES] -n TASKS COMMAND...; TASKS must be a multiple of NODES' >&2
  exit 2
}

nodes=1 tasks=0
while getopts N:n: option; do
  case $option in
    N) nodes=$OPTARG ;;
    n) tasks=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[ "$tasks" -ge 1 ] && [ "$nodes" -ge 1 ] && [ $((tasks % nodes)) -eq 0 ] && [ $# -ge 1 ] || usage

per_node=$((tasks / nodes))
list=127.0.0.1 counts=$per_node
if [ "$nodes" -gt 1 ]; then
  list="127.0.0.[1-$nodes]" counts="$per_node(x$nodes)"
fi
# What another launcher has set would come first.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK MASTER_ADDR MASTER_PORT COMPOSER_LAUNCHER \
  COMPOSER_MASTER_FD TORCHELASTIC_RESTART_COUNT TORCHELASTIC_USE_AGENT_STORE
export SLURM_JOB_ID="${SLURM_JOB_ID:-$$}" SLURM_STEP_ID=0
export SLURM_JOBID="$SLURM_JOB_ID" SLURM_STEPID=$SLURM_STEP_ID
export SLURM_NTASKS="$tasks" SLURM_NPROCS="$tasks" SLURM_STEP_NUM_TASKS="$tasks"
export SLURM_NNODES="$nodes" SLURM_JOB_NUM_NODES="$nodes" SLURM_STEP_NUM_NODES="$nodes"
export SLURM_NODELIST="$list" SLURM_JOB_NODELIST="$list" SLURM_STEP_NODELIST="$list"
export SLURM_TASKS_PER_NODE="$counts" SLURM_STEP_TASKS_PER_NODE="$counts"
export SLURM_LAUNCH_NODE_IPADDR=127.0.0.1

processes=
trap 'kill $processes 2> /dev/null' INT TERM
task=0
while [ "$task" -lt "$tasks" ]; do
  node=$((task / per_node))
  SLURM_PROCID=$task SLURM_LOCALID=$((task % per_node)) SLURM_NODEID=$node SLURMD_NODENAME="127.0.0.$((node + 1))" \
    "$@" &
  processes="$processes $!"
  task=$((task + 1))
done
worst=0
for process in $processes; do
  code=0
  wait "$process" || code=$?
  [ "$code" -le "$worst" ] || worst=$code
done
exit "$worst"
