#!/bin/bash
# 176B-style run, arguments spread over quoted strings with holes in them
GPUS_PER_NODE=8
NNODES=48
TP_SIZE=4
PP_SIZE=12
MICRO_BATCH_SIZE=2
GLOBAL_BATCH_SIZE=2048
NLAYERS=70
NHIDDEN=14336
NHEADS=112
SEQ_LEN=2048
TRAIN_SAMPLES=220_000_000  # 450B tokens
LR_DECAY_SAMPLES=200_000_000
LR_WARMUP_SAMPLES=183_105
OPTIMIZER_ARGS=" \
    --optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 \
    --lr 6e-5 --min-lr 6e-6 --lr-decay-style cosine \
    --lr-decay-samples $LR_DECAY_SAMPLES --lr-warmup-samples $LR_WARMUP_SAMPLES \
    --clip-grad 1.0 --weight-decay 1e-1 \
    "
GPT_ARGS=" \
    --pp-partition-method type:transformer|embedding \
    --num-layers $NLAYERS --hidden-size $NHIDDEN --num-attention-heads $NHEADS \
    --seq-length $SEQ_LEN --max-position-embeddings $SEQ_LEN \
    --micro-batch-size $MICRO_BATCH_SIZE \

    --global-batch-size $GLOBAL_BATCH_SIZE \
    --rampup-batch-size 192 16 9_765_625 \
    --train-samples $TRAIN_SAMPLES \
    --init-method-std 0.0048 --embed-layernorm --bf16 --seed 42 \
    --position-embedding-type alibi --checkpoint-activations \
    --pad-vocab-size-to 250880 \
    $OPTIMIZER_ARGS \
    "
export LAUNCHER="python -u -m torch.distributed.launch --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
export CMD="`pwd`/pretrain_gpt.py --tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP_SIZE $GPT_ARGS --distributed-backend nccl"
export SRUN_ARGS="--wait=60 --kill-on-bad-exit=1"
srun $SRUN_ARGS --jobid $SLURM_JOB_ID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee -a main_log.txt
