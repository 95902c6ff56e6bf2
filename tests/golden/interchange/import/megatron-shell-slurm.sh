#!/bin/bash
#SBATCH --job-name=llama
#SBATCH --nodes=4            # hosts
#SBATCH --ntasks-per-node 1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
module load cuda/12.4
source ~/venv/bin/activate
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
GPUS_PER_NODE=$SLURM_GPUS_PER_NODE
WORLD=$((SLURM_NNODES * GPUS_PER_NODE))
TP=8
DP=$((WORLD / TP))
options() {
  local accumulate=$1
  OPTIONS="--micro-batch-size 2 --global-batch-size $((2 * DP * accumulate))"
}
options 16
log() { echo "[$(date)] $*"; }
log "starting on $head_node_ip"
[ -n "$DEBUG" ] && set -x
srun --container-image nvcr.io/nvidia/pytorch:25.01 torchrun --nnodes $SLURM_JOB_NUM_NODES \
  --nproc-per-node $GPUS_PER_NODE --rdzv-id $RANDOM --rdzv-backend c10d \
  --rdzv-endpoint "$head_node_ip:29500" pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --vocab-size 50257 \
  --seq-length 2048 --max-position-embeddings 2048 $OPTIONS \
  --tensor-model-parallel-size $TP --sequence-parallel --bf16 \
  --save $CHECKPOINTS/run --data-path $(cat data.txt) --use-distributed-optimizer
