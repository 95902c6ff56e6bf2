torchrun --nnodes 4 --nproc-per-node 8 pretrain_mamba.py --hybrid-layer-pattern 'M-M-M*-|M-M-M*-' --hidden-size 4096
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 --ffn-hidden-size 21504
  --squared-relu --disable-bias-linear --normalization RMSNorm --untie-embeddings-and-output-weights
  --position-embedding-type none --is-hybrid-model --mamba-num-heads 128 --mamba-state-dim 256
  --seq-length 8192 --max-position-embeddings 8192 --vocab-size 131072 --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 64 --train-iters 100
  --lr 1e-4 --bf16 --use-distributed-optimizer --attention-dropout 0 --hidden-dropout 0
