torchrun --nproc-per-node 8 pretrain_mamba.py --hybrid-layer-pattern 'M-GM' --num-layers 4 --hidden-size 768 --num-attention-heads 12 \
  --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 4 --global-batch-size 64
